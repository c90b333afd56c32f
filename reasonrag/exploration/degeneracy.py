"""Degenerate trees, which give no training signal: their signs, remedies, and when to stop a run.

A sign is a pure function of one finished record; *most* means more than half of at least two cases. Decides what is
reported during a run, which signs end it, and after how many questions. Knows nothing of files, settings or models;
`docs/troubleshooting/degenerate-trees.md` has a section for every sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple

from preference import NO_FILTERS, FinalScore, RolloutNode, RolloutRecord, normalize_answer
from preference.filters import select
from preference.labelling import labelled_states
from preference.records import OF_THE_STATE
from preference.similarity import equivalent_steps
from reasonrag.agent.protocols.known import steps_of_a_search
from reasonrag.llm.reasoning import more_room, parser_advice

PAGE = "docs/troubleshooting/degenerate-trees.md"
TOLD_FROM = 10
"""Finished questions before a sign is reported."""
FAULTS_STOP_FROM, STOPS_FROM = 20, 100
"""Finished questions after which it is decided whether a run goes on. A fault of the endpoint or of the form of replies
shows in every question alike, after 20 and again after 100. A good teacher with hard questions may show everything
else, which therefore counts after 100, and only where no question at all gives a pair: if one in ten does, 20 in a row
without are common, and 100 are not."""
SEVERAL = 2
"""Minimum number of cases for *most*, of continuations that all end alike, and of siblings."""
NEARLY_ALL = 0.75
"""Share of states whose siblings are alike, and of continuations without an answer of their own, that marks a question:
a long-thinking teacher is forced to conclude half of the time, and may report None in every draw of a state."""
STEPS_WITHOUT_END = 8
"""Steps of a tree without any end, after which it is taken never to end: the longest path of the recipes that do not
follow every step to its end."""


@dataclass(frozen=True, slots=True)
class Sign:
    """means: what a question that shows it is like. remedy: what to try first. fault: of the endpoint or of the form of
    replies, not of questions and teacher."""

    name: str
    means: str
    remedy: str
    shows: Callable[[RolloutRecord], bool]
    fault: bool = False

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    def tell(self, shown: int, questions: int) -> str:
        told = f"{self.words} in {shown:,} of {questions:,} questions: {self.means}. {self.remedy}"
        return f"{told}; see {PAGE}#{self.name.replace('_', '-')}"


def _only_reasoning(rollout: RolloutRecord) -> bool:
    """Most draws are nothing but reasoning, perhaps unseen: cut by the token limit, or ended by themselves."""
    failed = ((each.parse_error, each.reasoning and not each.response) for each in _draws(rollout))
    return _most(error is not None and (error.cause == "reasoning_cut" or bool(only)) for error, only in failed)


def _answered_only_when_forced(rollout: RolloutRecord) -> bool:
    """More than `NEARLY_ALL` of at least two continuations end in a failed step, without an answer, or in a conclusion
    after more steps than one search and an answer; or none ends although the tree has `STEPS_WITHOUT_END` steps."""
    ends, least = _all_ends(rollout), 1 + steps_of_a_search(rollout.agent)
    if not ends:
        return len(rollout.nodes) > STEPS_WITHOUT_END
    unwilling = (
        each.end in ("failed", "unanswered") or (each.end == "conclusion" and each.steps > least) for each in ends
    )
    return _most(unwilling, share=NEARLY_ALL)


SIGNS = (
    Sign(
        "only_reasoning",
        "most replies are nothing but reasoning",
        f"If --max-reply-tokens cut them, {more_room()}; if they ended by themselves, {parser_advice()}",
        _only_reasoning,
        fault=True,
    ),
    Sign(
        "identical_siblings",
        "steps sampled in the same state are equivalent, so there is nothing to compare",
        "The endpoint seems to decode greedily or with one fixed seed: raise --temperature, and check that the server "
        "honours temperature, top_p and seed",
        lambda rollout: _most(_alike(rollout), share=NEARLY_ALL) and not _only_reasoning(rollout),  # no text, no step
        fault=True,
    ),
    Sign(
        "never_parses",
        "every continuation ends in a reply that does not parse",
        "Read some replies: the model does not follow the format that the prompt asks for (--prompts)",
        lambda rollout: _all(_all_ends(rollout), lambda each: each.end == "failed"),
        fault=True,
    ),
    Sign(
        "answered_only_when_forced",
        "an answer came only when it was forced: nearly all continuations end in the forced conclusion or in failed "
        "steps",
        "Read some replies: the model may ignore the prompt (--prompts), omit the tags, or find nothing",
        _answered_only_when_forced,
    ),
    Sign(
        "instant_answer",
        "most first steps are answers, so the pairs teach no searching",
        "Use questions that the teacher cannot answer from memory, or tell it to search first (--prompts)",
        lambda rollout: _most(
            node.action_type == "answer"
            for node in _draws(rollout)
            if node.layer == 0 and node.action == "think"  # with --max-steps 1 it must conclude
        ),
    ),
    Sign(
        "none_loop",
        "most read turns report None",
        "Check that the corpus covers the questions, and raise --top-k",
        lambda rollout: _most(
            normalize_answer(node.content or "") == "none" for node in _draws(rollout) if node.action_type == "evidence"
        ),
    ),
    Sign(
        "all_wrong",
        "no continuation ends in a right answer that the evidence supports, so all steps have the same reward",
        "Compare its answers with the gold answers: the teacher may be too weak, the corpus wrong, or the gold "
        "answers too long; if it answers from memory, --outcome f1 counts such answers",
        lambda rollout: _all(rollout.ends, lambda each: each.quality == 0),
    ),
    Sign(
        "all_right",
        "every continuation is right, so steps differ only in the length of their paths",
        "Use harder questions or a weaker teacher",
        # where a judge alone decides, right steps differ by more than their paths
        lambda rollout: rollout.recipe.reward != "rank" and _all(rollout.ends, lambda each: each.quality == 1),
    ),
)
"""Ordered from causes to consequences: a stopped run names the first that holds."""


def observed_signs(rollout: RolloutRecord) -> frozenset[str]:
    return frozenset(sign.name for sign in SIGNS if sign.shows(rollout))


def gives_a_pair(rollout: RolloutRecord) -> bool:
    """Whether two different steps of one state have rewards that differ, and not only by the length of their paths."""
    if len({node.reward for node in rollout.nodes[1:]}) < SEVERAL:  # all wrong, mostly: no need to compare
        return False
    states = labelled_states(rollout)  # mostly one of the first ones has such a pair
    alone = ([each] for each in states) if rollout.recipe.merges_equal else [states]  # else several are one state
    kept = (each.pair for some in alone for each in select(some, NO_FILTERS) if each.dropped is None)
    return any("efficiency_only" not in pair.tags for pair in kept)


class Look(NamedTuple):
    """What a record says of whether its run goes on. pairless: it shows a sign, and can give no pair."""

    signs: frozenset[str]
    pairless: bool

    @classmethod
    def at(cls, rollout: RolloutRecord, *, undecided: bool = True) -> Look:
        """undecided: whether it may still end the run; pairs are looked for only then, which takes as long again."""
        signs = observed_signs(rollout)
        return cls(signs, undecided and bool(signs) and not gives_a_pair(rollout))


@dataclass
class SignCounts:
    questions: int = 0
    shown: Counter[str] = field(default_factory=Counter)

    def add(self, signs: Iterable[str]) -> None:
        self.questions += 1
        self.shown.update(signs)

    @property
    def by_sign(self) -> dict[str, int]:
        """Number of questions per sign, without zeros."""
        return {sign.name: self.shown[sign.name] for sign in SIGNS if self.shown[sign.name]}

    def warnings(self) -> dict[str, str]:
        """By sign, of those that enough questions show."""
        if self.questions < TOLD_FROM:
            return {}
        return {
            each.name: each.tell(self.shown[each.name], self.questions)
            for each in SIGNS  # in healthy runs half of the questions show others than faults
            if self.shown[each.name] >= (0.5 if each.fault else 0.75) * self.questions
        }


class StopDecision:
    """Whether a run stops, decided after its first 20 and its first 100 questions in order: a share of them show a sign
    and can give no pair. Neither concurrency nor kills matter, since it looks at leading questions only.

    share: of these questions; 0: never stop. questions: in the whole run, which is not stopped after the last one.
    counts: signs of the leading questions that have ended. reason: why the run stops.
    """

    def __init__(self, share: float, questions: int) -> None:
        self.counts, self._pairless = SignCounts(), SignCounts()
        self.reason: str | None = None
        self._share, self._questions = share, questions
        self._seen: dict[int, Look | None] = {}
        self._leading = 0  # so many have ended

    @property
    def is_open(self) -> bool:
        return self._share > 0 and self.reason is None and self.counts.questions < STOPS_FROM

    def add(self, position: int, look: Look | None) -> None:
        """A question has ended. position: its place in order, from 0. look: None if it failed, and is not counted."""
        self._seen[position] = look
        while self.reason is None and self._leading in self._seen:
            first = self._seen.pop(self._leading)
            self._leading += 1
            if first is not None:
                self.counts.add(first.signs)
                if first.pairless:
                    self._pairless.add(first.signs)
                self.reason = self._reason()

    def _reason(self) -> str | None:
        count, pairless = self.counts.questions, self._pairless
        if not self._share or self._leading >= self._questions or count not in (FAULTS_STOP_FROM, STOPS_FROM):
            return None
        hopeless = count == STOPS_FROM == pairless.questions
        telling = (each for each in SIGNS if pairless.shown[each.name] >= self._share * count)
        first = next((each for each in telling if each.fault or hopeless), None)
        return first.tell(pairless.shown[first.name], count) if first else None


def _most(cases: Iterable[bool], *, share: float = 0.5) -> bool:
    found = list(cases)
    return len(found) >= SEVERAL and sum(found) > share * len(found)


def _alike(rollout: RolloutRecord) -> Iterator[bool]:
    """Of every state in which at least two steps were drawn, whether all are equivalent. Only plain samples with a
    reply count: no repairs, no other temperature, no prompts that show siblings."""
    for node in rollout.nodes:
        children = [rollout.nodes[each] for each in node.children_ids]
        replies = [each for each in children if not each.parse_error or each.parse_error.cause not in OF_THE_STATE]
        steps = [each for each in replies if each.sampled_with is None]
        if sum(step.draws for step in steps) > 1:
            first, *others = steps
            yield all(
                equivalent_steps(first, each)
                or (first.content is each.content is None and first.response == each.response)
                for each in others
            )


def _all_ends(rollout: RolloutRecord) -> list[FinalScore]:
    """The ends of all continuations, with failed steps that count nowhere by the run's recipe."""
    failed = [each for each in rollout.nodes[1:] if each.parse_error and not each.rollouts]
    uncounted = [each for each in failed if each.parse_error and each.parse_error.cause not in OF_THE_STATE]
    ends = [FinalScore(f1=None, em=None, steps=(each.layer or 0) + 1, end="failed") for each in uncounted]
    return rollout.ends + ends


def _draws(rollout: RolloutRecord) -> Iterator[RolloutNode]:
    """Every step, repeated by its number of draws."""
    return chain.from_iterable(repeat(node, node.draws) for node in rollout.nodes[1:])


def _all(ends: Sequence[FinalScore], holds: Callable[[FinalScore], bool]) -> bool:
    """Of all continuations, at least two."""
    return len(ends) >= SEVERAL and all(map(holds, ends))
