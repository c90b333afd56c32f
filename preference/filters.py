"""Filters: which candidates become rows, and the reason why each other one is dropped.

Every candidate is kept, or dropped under exactly one reason: the first that applies in the order of `DropReason`.
`select` applies the rules that look at one question, `dropped_by_caps` those about shares of the whole data set, at the
end. Reads no file and makes no label; `labelling` does that.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from preference.answer_scores import comparable
from preference.candidate_records import PairRecord, StateRecord, StepRecord, Tag, prefers_wrong, support_decides
from preference.labelling import labelled_states
from preference.margin_and_confidence import TOLERANCE
from preference.published.pair_rules import (
    LEAST_DIFFERENCE,
    builder_reading,
    dropped_by_builder,
    dropped_by_rank,
    is_judged_by_visits,
    is_ranked,
    visited_enough,
)
from preference.records import ActionType, RolloutRecord
from preference.similarity import NEARLY_THE_SAME, folded

DropReason = Literal[
    "contaminated",
    "held_out",
    "malformed",
    "unvalued",
    "not_reached",
    "wrong_trajectory",
    "not_ranked_apart",
    "same_content",
    "few_visits",
    "not_picked",
    "prompt_cut",
    "ungrounded",
    "repeated_query",
    "same_findings",
    "small_margin",
    "uncertain",
    "few_draws",
    "no_consensus",
    "golden_rejected",
    "near_identical",
    "too_long",
    "duplicate",
    "contradicted",
    "state_full",
    "efficiency_only_cap",
    "style_only_cap",
]
"""In the order of trial; docs/reference/formats/drop-reasons.md says what each means and what undoes it."""

SURE_TO_DIFFER, DRAWS_TO_DIFFER = 0.95, 4
"""Confidence and continuations of each step from which two differ that reveal the same."""

DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)


@dataclass(frozen=True, slots=True)
class PairingRules:
    """The filters' thresholds. None, and a share of 1, mean no limit; caps keep the highest confidence.

    min_margin: after division by alpha**layer if the recipe says so. The published builder uses .01.
    min_confidence: smallest chance that the chosen step is truly better; see `margin_and_confidence`. The default is
        the lowest tried value at which 19 of 20 pairs were right, ties excluded, in every setting of the laboratory and
        with all teachers of known truth on real questions but one, which guesses and errs most: .944 on HotpotQA, and
        .969 with a confidence of .8 (benchmarks/RESULTS.md).
    min_draws: smallest effective sample size of a side, unless both are answers, whose scores are exact.
    max_per_state: two good and two bad of four siblings make four pairs; more only says the same again, and of a state
        with many draws too often.
    allow_malformed: a rejected side that did not parse. allow_ungrounded, allow_repeated_query: of the chosen side.
    consensus: whether a second witness must prefer the chosen step: of a judge's label the values, by min_margin and
        min_confidence; of others the critics that have scored both steps.
    as_published: keep what the system whose recipe made the tree keeps, by `preference.published.pair_rules`; the other
        rules then do not count. See `AS_PUBLISHED`.
    """

    min_margin: float = 0.05
    min_confidence: float = 0.7
    min_draws: int = 1
    max_similarity: float = NEARLY_THE_SAME
    max_per_state: int | None = 4
    max_row_tokens: int | None = None
    max_efficiency_only: float = 0.1
    max_style_only: float = 0.1
    allow_malformed: bool = False
    allow_cut_prompts: bool = False
    allow_ungrounded: bool = False
    allow_repeated_query: bool = False
    allow_same_findings: bool = False
    consensus: bool = False
    as_published: bool = False

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of `pairs` that make these rules, as `summary.json` has them."""
        return asdict(self)


NO_FILTERS = PairingRules(
    min_margin=0.0,
    min_confidence=0.0,
    max_similarity=1.0,
    max_per_state=None,
    max_efficiency_only=1.0,
    max_style_only=1.0,
    allow_cut_prompts=True,
    allow_ungrounded=True,
    allow_repeated_query=True,
    allow_same_findings=True,
)
"""Every optional filter off, except the one against rejected steps that did not parse."""

AS_PUBLISHED = replace(NO_FILTERS, min_margin=LEAST_DIFFERENCE, allow_malformed=True, as_published=True)
"""The labels and filters of the published systems."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair with its state. dropped: the reason it was dropped for; None while it is kept."""

    state: StateRecord
    pair: PairRecord
    chosen: StepRecord
    rejected: StepRecord
    dropped: DropReason | None = None

    @property
    def margin(self) -> float:
        """The margin; 0 if unknown."""
        return self.pair.margin or 0.0

    @property
    def types(self) -> tuple[ActionType | None, ActionType | None]:
        return self.chosen.action_type, self.rejected.action_type

    @property
    def tokens(self) -> int | None:
        """Tokens of prompt and longer reply; None if not counted."""
        if self.state.tokens is None or self.chosen.tokens is None or self.rejected.tokens is None:
            return None
        return self.state.tokens + max(self.chosen.tokens, self.rejected.tokens)

    @property
    def surest_first(self) -> tuple[float, float]:
        return -(self.pair.confidence or 0.0), -self.margin

    @property
    def widest_first(self) -> tuple[float, float, int, int, int]:
        borrowed = (self.chosen.same_as is not None) + (self.rejected.same_as is not None)
        return -round(self.margin, 9), -(self.pair.confidence or 0.0), borrowed, self.chosen.id, self.rejected.id


def candidates(rollout: RolloutRecord, rules: PairingRules) -> Iterator[Candidate]:
    """All candidates of one tree, filtered by the rules except those about shares of the data set."""
    return iter(select(labelled_states(rollout), rules))


def candidates_of(state: StateRecord, *, as_published: bool = False) -> Iterator[Candidate]:
    """Every pair of a state; its steps have the reward of the label. as_published: as its recipe's system sees them."""
    steps = {step.id: step for step in state.steps}
    for pair in state.pairs:
        chosen, rejected = steps[pair.chosen], steps[pair.rejected]
        if pair.label == "outcome":
            chosen, rejected = (each.model_copy(update={"reward": each.own_outcome}) for each in (chosen, rejected))
        found = Candidate(state, pair, chosen, rejected)
        yield _as_published(found) if as_published else found


def select(
    states: Iterable[StateRecord], rules: PairingRules, *, left_out: DropReason | None = None
) -> list[Candidate]:
    """Filter all candidates of one question; their order stays.

    states: of one question; those with one `state_id` are one state, even from several runs. left_out: why the
        whole question is.
    """
    judged = [
        replace(each, dropped=left_out or _reason_alone(each, rules))
        for state in states
        for each in candidates_of(state, as_published=rules.as_published)
    ]
    dropped = _repeated_ranks(judged) if rules.as_published else _reasons_within_states(judged, rules)
    return [replace(each, dropped=dropped[i]) if i in dropped else each for i, each in enumerate(judged)]


def _reason_alone(each: Candidate, rules: PairingRules) -> DropReason | None:
    if rules.as_published:
        return _reason_as_published(each)
    chosen, rejected, pair = each.chosen, each.rejected, each.pair
    valued = pair.label in ("value", "outcome")
    ranked = _reason_of_rank(each)
    reasons: tuple[tuple[DropReason, bool], ...] = (
        ("malformed", bool(chosen.parse_error or (rejected.parse_error and not rules.allow_malformed))),
        ("unvalued", valued and pair.margin is None),
        ("wrong_trajectory", ranked == "wrong_trajectory"),
        ("not_ranked_apart", ranked == "not_ranked_apart"),
        ("same_content", pair.same),
        ("few_visits", pair.label is None and _is_unshown(each)),
        ("not_picked", pair.label is None),
        ("prompt_cut", "prompt_cut" in pair.tags and not rules.allow_cut_prompts),
        ("ungrounded", chosen.grounded is False and not rules.allow_ungrounded),
        ("repeated_query", not rules.allow_repeated_query and _repeats_a_query(each)),
        ("same_findings", valued and not rules.allow_same_findings and _reveals_the_same(each)),
        ("small_margin", valued and (each.margin < rules.min_margin or each.margin <= TOLERANCE)),
        ("uncertain", valued and pair.confidence is not None and pair.confidence < rules.min_confidence),
        ("few_draws", pair.label == "value" and _fewest_draws(each) < rules.min_draws - TOLERANCE),
        ("no_consensus", rules.consensus and not _is_agreed(each, rules)),
        ("golden_rejected", _rejects_golden(each)),
        ("near_identical", pair.same_type and pair.similarity > rules.max_similarity),
        ("too_long", rules.max_row_tokens is not None and (each.tokens or 0) > rules.max_row_tokens),
    )
    return next((reason for reason, holds in reasons if holds), None)


def _fewest_draws(each: Candidate) -> float:
    """Of the side that was continued less; infinite where that does not count or is not known."""
    known = [step.observations or math.inf for step in (each.chosen, each.rejected)]
    return math.inf if each.types == ("answer", "answer") else min(known)


def _reveals_the_same(each: Candidate) -> bool:
    """Whether both steps reveal the same in part, unless they differ all the same: by joint estimates that are sure, of
    enough continuations of each. Values without a confidence are a judge's word."""
    sure = each.pair.confidence
    judged = each.pair.label == "value" and sure is None
    draws = min(min(step.rollouts, step.observations or 0.0) for step in (each.chosen, each.rejected))
    differ = (sure or 0.0) >= SURE_TO_DIFFER and draws >= DRAWS_TO_DIFFER
    return each.pair.in_common > 0 and not (judged or differ)


def _rejects_golden(each: Candidate) -> bool:
    """Whether it prefers a wrong answer to a gold one, and support is not why; imported pairs are as they are."""
    golds = each.state.golden_answers
    return (
        each.pair.label != "imported"
        and prefers_wrong(golds, each.chosen, each.rejected)
        and not support_decides(golds, each.chosen, each.rejected)
    )


def _is_agreed(each: Candidate, rules: PairingRules) -> bool:
    """Whether a second witness prefers the chosen step."""
    if each.pair.label == "judge":
        by_values = each.pair.value_confidence
        sure = by_values is None or by_values >= rules.min_confidence
        return each.margin >= rules.min_margin and each.margin > TOLERANCE and sure
    better, worse = each.chosen.critic_score, each.rejected.critic_score
    return better is not None and worse is not None and better > worse


_LINE_OF_A_QUERY = re.compile(r"^Query: (.*)$", re.MULTILINE)
"""In the history of agents that reply in JSON; no passage of theirs can imitate it."""
_QUERY = re.compile(r'<query>((?:(?!<query>).)*?)</query>|"query": "([^\n]*)"\}\}\n</tool_call>', re.DOTALL)


def _repeats_a_query(each: Candidate) -> bool:
    """Whether the chosen query repeats one that the prompt of its state shows."""
    if each.chosen.action_type != "query" or each.chosen.content is None or not each.state.prompt:
        return False
    shown = "\n".join(turn.content for turn in each.state.prompt[1:])
    return comparable(each.chosen.content) in _queries_in(shown, of_lines=each.state.origin.agent is not None)


@lru_cache(maxsize=8)  # the candidates of a state come together
def _queries_in(prompt: str, *, of_lines: bool) -> frozenset[str]:
    lines = _LINE_OF_A_QUERY.findall(prompt) if of_lines else ()
    return frozenset(map(comparable, [*map("".join, _QUERY.findall(prompt)), *lines])) - {""}


def _is_unshown(each: Candidate) -> bool:
    """Whether ProRAG does not show its judge these two."""
    return is_judged_by_visits(each.state) and not visited_enough(each.state, each.chosen, each.rejected)


def _reason_of_rank(each: Candidate) -> DropReason | None:
    by_rank = is_ranked(each.state) and each.pair.label != "outcome"
    return dropped_by_rank(each.state, each.chosen, each.rejected) if by_rank else None


def _as_published(each: Candidate) -> Candidate:
    """The candidate as the system of its recipe sees it: ReasonRAG's builder goes by the rewards alone, and reads
    types and contents in its own way."""
    if each.pair.label != "value" or is_ranked(each.state):
        return each
    first, second = (
        step.model_copy(update=dict(zip(("action_type", "content"), builder_reading(step.response), strict=True)))
        for step in (each.chosen, each.rejected)
    )
    if first.reward is not None and second.reward is not None and first.reward < second.reward:
        return replace(each, pair=each.pair.swapped(), chosen=second, rejected=first)
    return replace(each, chosen=first, rejected=second)


def _reason_as_published(each: Candidate) -> DropReason | None:
    if each.pair.label == "imported":
        return None  # the builder itself made the row
    if is_ranked(each.state):
        if each.chosen.parse_error:
            return "malformed"
        if each.pair.margin is None:
            return "unvalued"
        return _reason_of_rank(each) or ("same_content" if each.chosen.response == each.rejected.response else None)
    if each.pair.label == "value":
        return dropped_by_builder(each.state, each.chosen, each.rejected)
    return None if each.pair.label == "judge" else "few_visits" if _is_unshown(each) else "not_picked"


def _repeated_ranks(judged: Sequence[Candidate]) -> dict[int, DropReason]:
    """Drop reasons, by position, of pairs of one state with the replies of an earlier one, where steps are ranked:
    RAG-Gym pairs each different reply once, ReasonRAG every two siblings."""
    said: dict[tuple[int, str, str], int] = {}
    ranked = [position for position, each in enumerate(judged) if each.dropped is None and is_ranked(each.state)]
    for position in ranked:
        each = judged[position]
        said.setdefault((id(each.state), each.chosen.response, each.rejected.response), position)
    return dict.fromkeys(set(ranked).difference(said.values()), "duplicate")


def _reasons_within_states(judged: Sequence[Candidate], rules: PairingRules) -> dict[int, DropReason]:
    """Drop reasons, by position, of pairs that lose against others of their state."""
    dropped: dict[int, DropReason] = {}
    said = set[tuple[str, object, object]]()
    kept = defaultdict[str, list[int]](list)
    passed = [position for position, each in enumerate(judged) if each.dropped is None]
    for position in sorted(passed, key=lambda position: judged[position].widest_first):
        each = judged[position]
        state, chosen, rejected = each.state.state_id, _says(each.state, each.chosen), _says(each.state, each.rejected)
        if (state, chosen, rejected) in said:
            dropped[position] = "duplicate"
        elif (state, rejected, chosen) in said:
            dropped[position] = "contradicted"
        else:
            kept[state].append(position)
        said.add((state, chosen, rejected))
    for positions in kept.values() if rules.max_per_state is not None else ():
        positions.sort(key=lambda position: (judged[position].surest_first, position))
        dropped |= dict.fromkeys(positions[rules.max_per_state :], "state_full")
    return dropped


def _says(state: StateRecord, step: StepRecord) -> tuple[object, str]:
    """A step's type, and the content of its earliest equivalent sibling, without case and runs of spaces."""
    first = step if step.same_as is None else next((each for each in state.steps if each.id == step.same_as), step)
    said = first.response if first.content is None else first.content
    return step.action_type, folded(said)


# -- the whole data set --------------------------------------------------------------------------------------


class PassedPair(NamedTuple):
    """What the rules about the whole data set need of a pair that passed the others."""

    efficiency_only: bool
    style_only: bool
    surest_first: tuple[float, float]

    @classmethod
    def of(cls, each: Candidate) -> PassedPair:
        return cls("efficiency_only" in each.pair.tags, "style_only" in each.pair.tags, each.surest_first)


def dropped_by_caps(kept: Sequence[PassedPair], rules: PairingRules) -> dict[int, DropReason]:
    """Drop reasons, by position among the kept pairs, of those beyond the data set's caps."""
    dropped: dict[int, DropReason] = {}
    before = -1
    while before != len(dropped):  # pairs dropped by one rule change the shares for the others
        before = len(dropped)
        dropped |= _over_share(kept, dropped, "efficiency_only", rules.max_efficiency_only, "efficiency_only_cap")
        dropped |= _over_share(kept, dropped, "style_only", rules.max_style_only, "style_only_cap")
    return dropped


def _over_share(
    kept: Sequence[PassedPair], dropped: Collection[int], tag: Tag, share: float, reason: DropReason
) -> dict[int, DropReason]:
    """Drop tagged pairs until they are at most that share of the rest; the highest confidence stays."""
    tagged = [i for i, each in enumerate(kept) if getattr(each, tag) and i not in dropped]
    others = len(kept) - len(dropped) - len(tagged)
    room = len(tagged) if share >= 1 else int(share / (1 - share) * others + TOLERANCE)
    tagged.sort(key=lambda i: (kept[i].surest_first, i))
    return dict.fromkeys(tagged[room:], reason)
