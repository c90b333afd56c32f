"""Why a pair was labelled as it was, and why it is a row or not: in sentences that need no other page.

Decides the words, and with how many digits a number is written, so that every equation holds as printed. The numbers
are those of the records; nothing is computed anew but what a sentence works out. Knows nothing of pages or terminals;
text of models stands in quotes and is escaped by the page or the terminal that shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isclose
from typing import Literal, get_args

from pydantic import BaseModel

from preference import Candidate, DropReason, FinalScore, PairingRules, RolloutNode, RolloutRecord, StepRecord, f1_score
from preference.candidate_records import Tag
from preference.causes import NOT_DEAD, cause_of
from preference.filters import DRAWS_TO_DIFFER, SURE_TO_DIFFER
from preference.margin_and_confidence import TOLERANCE, confidence, observed, shares_estimates
from preference.published.pair_rules import GOOD_TRAJECTORY, is_judged_by_visits
from preference.records import OF_THE_STATE, ContinuationResult
from reasonrag.data.multiple_choice import in_words
from reasonrag.exploration.summary import counted_ends
from reasonrag.rendering import counted, percent
from reasonrag.viewing.collection import NO_ROW, ExploredTree, RowPlace

Topic = Literal["state", "chosen", "rejected", "label", "confidence", "checks", "verdict"]
_QUOTED, _LEAD, _MOST = 80, 30, 90
"""Letters: of an answer; both sides of a pair that begin alike with more are cut before they differ; most of each that
is shown."""
_TURN_WORDS = {
    "think": ": the agent had to search or answer",
    "read": ": the agent had to report evidence from the passages its query found",
    "conclude": ": the agent had to answer, because its step budget was spent",
}
OUTCOMES = {
    "f1": "its F1 against the gold answers",
    "em": "its exact match with the gold answers",
    "evident_f1": "its F1 against the gold answers",
    "builder_f1": "its F1 against the gold answers, articles counted",
    "prorag_f1": "its F1 against the gold answers, articles and punctuation counted",
    "choice": "because it names the right option alone, or not",
    "judge": "from a judge",
    "rubric": "from a judge with a rubric",
}


class Explanation(BaseModel):
    """A few sentences about one side of the matter."""

    topic: Topic
    text: str


def explain(
    each: Candidate, tree: ExploredTree | None, rules: PairingRules, *, row: RowPlace = NO_ROW, caps_known: bool = True
) -> list[Explanation]:
    """Everything that decided this pair, in the order in which it is told.

    tree: the pair's, where it is at hand. caps_known: whether rules about shares of the whole data set have been
    applied.
    """
    turn = _TURN_WORDS.get(each.state.action or "", "")
    told: list[tuple[Topic, str]] = [
        ("state", f"Both steps were sampled in the same state, at depth {each.state.layer}{turn}."),
        ("chosen", _rewarded(each, each.chosen, tree) + _uncounted(each, each.chosen)),
        ("rejected", _rewarded(each, each.rejected, tree) + _uncounted(each, each.rejected)),
        ("label", _label(each, tree)),
    ]
    if each.pair.label == "value" and each.pair.confidence is not None:
        told.append(("confidence", _confidence(each, tree)))
    told += [("checks", text) for text in _checks(each)]
    told.append(("verdict", _verdict(each, rules, row, caps_known=caps_known)))
    return [Explanation(topic=topic, text=text) for topic, text in told]


def differing(each: Candidate) -> tuple[str, str]:
    """Both steps on a line each, from the word in which they first differ: their contents, or the replies where those
    are equal."""
    steps = each.chosen, each.rejected
    told = None not in (contents := {step.content for step in steps}) and len(contents) > 1
    one, other = (" ".join((step.content or "" if told else step.response).split()) for step in steps)
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(one.rfind(" ", 0, same) + 1, same - _LEAD) if same > _LEAD else 0
    return _cut(one, begin), _cut(other, begin)


def _cut(text: str, begin: int) -> str:
    return f"{'… ' if begin else ''}{text[begin : begin + _MOST]}{'…' if len(text) > begin + _MOST else ''}"


def cautions(each: Candidate) -> list[str]:
    """Why the label needs review: gold answers, gold passages or answers that do not count say the opposite, or both
    steps reveal the same.

    They decide no label by themselves, since a lucky guess teaches nothing and gold passages are not the only ones that
    help; a reader should still see where they contradict one.
    """
    found = []
    if each.pair.in_common and each.dropped is None:
        found.append(f"both steps reveal the same ({percent(each.pair.in_common, 0)} in common)")
    if each.types == ("answer", "answer"):
        said = [in_words(each.state.question, step.content or "") for step in (each.chosen, each.rejected)]
        chosen, rejected = (f1_score(answer, each.state.golden_answers) for answer in said)
        if chosen < rejected:
            worse, better = apart(chosen, rejected)
            found.append(f"by gold answers alone, the rejected answer is better (F1 {better}; chosen: {worse})")
    if each.pair.gold == "wrong":
        does = "finds" if each.rejected.action_type == "query" else "reports"
        found.append(f"the rejected step {does} more gold passages than the chosen one")
    for name, step, sign in (("rejected", each.rejected, 1), ("chosen", each.chosen, -1)):
        mean = step.expected_outcome if each.pair.label == "value" else None
        against = [q for q in step.uncounted or () if mean is not None and sign * (q - mean) > TOLERANCE]
        found += [f"below the {name} step, {uncounted_in_words(against)}"] if against else []
    return found


# -- why a question has no pair --------------------------------------------------------------------------------


def why_no_pair(records: Sequence[RolloutRecord], candidates: Sequence[Candidate]) -> str:
    """In a few sentences: how its answers ended, what was lacking, and why candidates were dropped. Empty where a pair
    was kept, or the question failed."""
    if any(each.dropped is None for each in candidates) or (records and all(each.error for each in records)):
        return ""
    said = [sentence for record in records if not record.error for sentence in _ended(record)]
    reasons = Counter(each.dropped.replace("_", " ") for each in candidates if each.dropped)
    if reasons:
        told = ", ".join(f"{many:,} {reason}" for reason, many in reasons.most_common())
        said.append(f"{'The candidate was' if len(candidates) == 1 else 'All candidates were'} dropped: {told}.")
    else:
        said.append("No state has two steps to compare.")
    return " ".join(said)


def _ended(record: RolloutRecord) -> Iterator[str]:
    """How the answers of a tree ended, and which gold passages were lacking."""
    ends = counted_ends(record)
    results = Counter(end.came_to for end in ends)
    given = Counter[str]()
    for node in record.nodes:
        if node.action_type == "answer" and node.content is not None:
            given[" ".join(node.content.split())[:_QUOTED]] += node.draws
    often = f", most often {given.most_common(1)[0][0]!r}" if given else ""
    alike = f"All {len(ends):,} paths ended alike" if len(ends) > 1 else "The only path ended"
    if ends:
        yield f"{alike if len(results) == 1 else 'Outcomes differ'}: {results_in_words(results)}{often}."
    cause = cause_of(record)
    if not record.gold_passages or cause.cause in NOT_DEAD:
        return
    many = len(record.gold_passages)
    titles = {each.id: each.title for node in record.nodes for each in node.passages or ()}
    lacking = ", ".join(repr(titles.get(each, each)) for each in cause.lacking)
    if cause.never_found:
        yield f"Gold passages found: {many - len(cause.lacking):,} of {many:,}. No query found {lacking}."
    elif lacking:
        yield f"No path reports all {many:,} gold passages; lacking: {lacking}."
    else:
        yield f"A path reports all {many:,} gold passages."


# -- the reward of a step --------------------------------------------------------------------------------------


def _rewarded(each: Candidate, step: StepRecord, tree: ExploredTree | None) -> str:
    """A step's reward, and what it is made of."""
    if step.parse_error is not None:
        reward = "without a reward" if step.reward is None else f"with reward {number(step.reward)}"
        if step.parse_error in OF_THE_STATE:
            return f"There is no reply ({step.parse_error}): the path ends here, {reward}, and counts nowhere."
        return f"The reply could not be parsed as a step ({step.parse_error}): the path ends here, {reward}."
    if each.pair.label == "outcome":
        ended = "has no known end" if step.reward is None else f"ended with outcome {number(step.reward)}"
        return f"The trajectory in which this step was first drawn {ended}."
    rule = each.state.origin.reward or ""
    if step.reward is None:
        no_end = "no counted continuation from this step reached an answer"
        why = "the imported file does not give one" if each.pair.label == "imported" else no_end
        return f"Reward unknown: {_UNKNOWN.get(rule, why)}."
    node = tree.record.nodes[step.id] if tree and step.id < len(tree.record.nodes) else None
    if rule in _BY_RULE:
        visits = counted(node.visits, "simulation") if node else "the simulations"
        how = f": {_BY_RULE[rule].format(visits=visits)}."
    elif tree and node:
        how = f". {_made_of(node, tree.record, step.reward)}"
    elif step.action_type == "answer":
        how = ". An answer. Its score is in its tree, which is not here."
    elif step.rollouts:
        how = f". The mean over {counted(step.rollouts, 'continuation')}, discounted as the recipe says."
    else:
        how = ". From continuations that are not in this folder."
    return f"Reward {number(step.reward)}{how}{_shared(step, tree.record if tree and node else None)}"


_UNKNOWN = {
    "rank": "its state was not ranked",
    "value": "the search simulated another step of this state and never returned to this one",
    "spre_distinct": "no completed trajectory runs through this step, so the branch is pruned",
}
"""By rule, why a step may have no reward."""
_BY_RULE = {
    "rank": "1 / (1 + rank), where a judge ranks all steps of this state from 0; 0 for all steps if the judge failed",
    "value": "the mean value backed up by {visits} through this step, discounted per level",
}
"""Rules whose rewards are no means of outcomes."""


def _shared(step: StepRecord, record: RolloutRecord | None) -> str:
    """With which siblings a step shares its estimate."""
    said = "" if step.same_as is None else f" Same content as step {step.same_as}, whose estimate it shares."
    common = record.common_findings[step.id] if record and shares_estimates(record.recipe) else {}
    others = ", ".join(f"#{each} by {percent(share, 0)}" for each, share in sorted(common.items()))
    return f"{said} Continuations of siblings that reveal the same count too: {others}." if common else said


def _made_of(node: RolloutNode, record: RolloutRecord, reward: float) -> str:
    """What an answer scores, or what came of the continuations through another step, and how that becomes a reward."""
    if node.action_type == "answer":
        mean = node.quality
        if mean is None:
            return "Its score is not known."
        said = _score(node, record.recipe.outcome, mean)
        lengths = [(node.layer or 0) + 1]
    elif not node.rollouts:
        return "From a step with the same content."
    else:
        lengths = sorted({end.steps for end in node.rollouts})
        mean, said = _mean(node, record)
    return f"{said}.{_discounted(mean, lengths, record.recipe.alpha, reward)}"


def _score(node: RolloutNode, outcome: str, quality: float) -> str:
    """What an answer scores."""
    if outcome == "evident_f1" and node.in_evidence is False and node.f1:
        return (
            f"The answer scores 0, because no evidence reported so far supports it, although its F1 against the gold "
            f"answers is {number(node.f1)}"
        )
    held = " (evidence reported so far supports it)" if outcome == "evident_f1" and node.in_evidence else ""
    meaning = OUTCOMES.get(outcome, f"by the outcome {outcome}")
    if outcome == "evident_f1" and node.f1 is not None and node.f1 != quality:
        bound = "at least that, as it contains" if quality > node.f1 else "at most that, as it does not contain"
        meaning = f"{bound} a gold answer, although its F1 against them is {number(node.f1)}"
    return f"The answer scores {number(quality)}, {meaning}{held}"


_MEANS = {
    "outcome": ", weighted by visits of the search",
    "spre_distinct": " over distinct trajectories, each counted once",
}
"""Rules whose mean takes no sum to show."""


def _mean(node: RolloutNode, record: RolloutRecord) -> tuple[float | None, str]:
    """The mean outcome of the continuations through a step, where it is shown, and what is said of them."""
    rule = record.recipe.reward or ""
    results = results_in_words(Counter(end.came_to for end in node.rollouts))
    found = f"{counted(len(node.rollouts), 'continuation')}: {results}."
    if rule in _MEANS:
        return None, f"{found} The mean{_MEANS[rule]}"
    plain = sum(end.quality for end in node.rollouts) / len(node.rollouts)
    even = node.expected_outcome if rule == "spre_even" and node.expected_outcome is not None else plain
    if _equal(even, plain):
        return even, f"{found} Mean {number(even)}"
    raw, weighted = apart(plain, even)
    how = "Weighting each sampled reply equally (the search oversamples some branches)"
    if record.common_findings[node.id] and shares_estimates(record.recipe):
        how = "Counting siblings that reveal the same, and each sampled reply equally"
    return even, f"{found} Raw mean {raw}. {how}: {weighted}"


def _discounted(mean: float | None, lengths: Sequence[int], alpha: float, reward: float) -> str:
    """How steps from the question lower a mean outcome: worked out where all paths have one length."""
    if alpha == 1:
        return ""
    shortest, longest = lengths[0], lengths[-1]
    steps = counted(longest, "step") if shortest == longest else f"{shortest} to {longest} steps"
    worked = None
    if mean is not None and shortest == longest and _equal(mean * alpha**longest, reward):
        form, base = f"{{}} x {alpha:g}^{longest}", float(f"{alpha:g}")
        worked = _equation(form, (mean,), reward, lambda a: a * base**longest)
    return f" Discounted by {alpha:g} per step from the question ({steps}){f': {worked}' if worked else ''}."


def results_in_words(counts: Mapping[ContinuationResult, int]) -> str:
    """How many continuations ended right, partly right, wrong or in a failed step."""
    order = (name for name in get_args(ContinuationResult) if counts.get(name))
    words = [f"{counts[name]} {name}{' (unreadable reply)' * (name == 'failed')}" for name in order]
    return ", ".join(words) or "none ended"


def end_words(name: str) -> str:
    """What the continuations of a question came to, in words: `all_wrong` as `all wrong`."""
    return "mixed outcomes" if name == "mixed" else name.replace("_", " ")


def uncounted_in_words(outcomes: Sequence[float] | None, drawn_otherwise: int = 0) -> str:
    """`1 right answer not counted: the search had looked for it`, and how many were drawn otherwise; empty without
    any."""
    said = []
    if outcomes:
        many, them = ("answer", "it") if len(outcomes) == 1 else ("answers", "them")
        came_to = Counter(FinalScore(f1=each, em=None, steps=0).came_to for each in outcomes)
        said.append(f"{results_in_words(came_to)} {many} not counted: the search had looked for {them}")
    if drawn_otherwise:
        said.append(f"{counted(drawn_otherwise, 'answer')} not counted: not drawn by the plain prompt")
    return "; ".join(said)


def _uncounted(each: Candidate, step: StepRecord) -> str:
    told = step.uncounted and each.pair.label == "value" and step.action_type != "answer"
    return f" {uncounted_in_words(step.uncounted)}." if told else ""


# -- label and confidence --------------------------------------------------------------------------------------


def _label(each: Candidate, tree: ExploredTree | None) -> str:
    pair, saw = each.pair, "the visited steps" if is_judged_by_visits(each.state) else "every step"
    if pair.label is None:
        return f"A judge saw {saw} of this state and did not pick this pair."
    if pair.label == "judge":
        values = "" if pair.margin is None else f" By the rewards alone the margin would be {number(pair.margin)}."
        picked = "picked the chosen step as better and the rejected one as worse"
        return f"A judge saw {saw} of this state and {picked}.{values}"
    if pair.label == "imported":
        return "The label comes from the imported file."
    unknown, tied, better = _COMPARED[pair.label]
    if not pair.margin:
        return unknown if pair.margin is None else tied
    shorter = (
        " Without the discount both steps are equal: the chosen one reaches its answers in fewer steps, or was visited "
        "more often."
    )
    worked = _margin(each, pair.margin, tree)
    return f"{better * (pair.margin > 0)}{worked}{shorter * ('efficiency_only' in pair.tags)}"


_COMPARED = {
    "value": (
        "One step has no known reward, so the two cannot be compared.",
        "Both have the same reward, so neither is better; the earlier step is listed first.",
        "The chosen step has the higher reward. ",
    ),
    "outcome": (
        "One of the two trajectories has no known end, so the steps cannot be compared.",
        "Both trajectories had the same outcome, so neither step is better; the earlier one is listed first.",
        "The chosen step's own trajectory ended better. ",
    ),
}
"""By label: where the margin is unknown, 0, or above."""


def _margin(each: Candidate, margin: float, tree: ExploredTree | None) -> str:
    """The margin, worked out from both rewards; without the sum where no tree tells how it was made."""
    chosen, rejected = each.chosen.reward or 0.0, each.rejected.reward or 0.0
    form, scale, why = "{} - {}", 1.0, ""
    if not _equal(chosen - rejected, margin):
        if tree is None or not tree.record.recipe.margin_by_layer:
            return f"Margin: {number(margin)}, the difference in reward as scaled by the recipe."
        alpha, layer = f"{tree.record.recipe.alpha:g}", each.state.layer
        form, scale = f"({{}} - {{}}) / {alpha}^{layer}", float(alpha) ** layer
        why = ", divided by the discount at this depth so that deep pairs count as much"
    worked = _equation(form, (chosen, rejected), margin, lambda a, b: (a - b) / scale)
    return f"Margin: {worked or number(margin)}{why}."


def _confidence(each: Candidate, tree: ExploredTree | None) -> str:
    """The definition, and the numbers in it where the tree that made the label is at hand."""
    known = [f"n {number(n)}, r {number(r)}" for r, n in (_observed(each, tree.record) if tree else ())]
    sizes = [f"effective sample size {number(step.observations)}" for step in (each.chosen, each.rejected)]
    chosen, rejected = known or sizes
    halved = ", half of it for an answer against another type" if "answer" in each.types != ("answer", "answer") else ""
    low = " Below 0.5: the data do not favour the chosen step." if (each.pair.confidence or 0.0) < 1 / 2 else ""
    return (
        f"P(chosen > rejected) = {number(each.pair.confidence)}: the chance that a draw from Beta(1/2 + n r, "
        f"1/2 + n (1 - r)) of the chosen step ({chosen}) exceeds one of the rejected step ({rejected}). r: reward / "
        "alpha^(depth + 1), so that a right answer k steps below counts alpha^k. n: effective sample size, in "
        f"which continuations with the same first steps count less{halved}.{low}"
    )


def _observed(each: Candidate, record: RolloutRecord) -> list[tuple[float, float]]:
    """r and n of both sides; empty where others made the label, as a student's continuations."""
    nodes = [record.nodes[step.id] for step in (each.chosen, each.rejected) if step.id < len(record.nodes)]
    sides = zip(nodes, reversed(nodes), strict=True)
    found = [known for node, other in sides if (known := observed(record, node, other))]
    return found if len(found) > 1 and _equal(confidence(*found[:2]), each.pair.confidence or 0.0) else []


def _checks(each: Candidate) -> list[str]:
    found = []
    if each.chosen.grounded is not None:
        held = "is" if each.chosen.grounded else "is not"
        found.append(f"The chosen step {held} supported by the passages read so far (string match).")
    if (gold := each.pair.gold) != "unknown":
        more = {"right": "more gold passages than", "wrong": "fewer gold passages than", "tie": "as many as"}[gold]
        found.append(f"Gold passages: the chosen step has {more} the rejected one.")
    return found + [text for tag, text in _TAGS.items() if tag in each.pair.tags]


_TAGS: dict[Tag, str] = {
    "prompt_cut": "Prompt cut: the endpoint seems to have seen only a part of this prompt.",
    "one_draw": "One draw: the label rests on one continuation a side.",
    "style_only": "Style only: both answers contain a gold answer, or neither does.",
    "same_findings": "Same findings: both steps reveal the same.",
    "golden_rejected": "Golden rejected: the rejected answer equals a gold answer, but evidence supports the chosen "
    "one alone.",
}


# -- the verdict -----------------------------------------------------------------------------------------------


def _verdict(each: Candidate, rules: PairingRules, row: RowPlace, *, caps_known: bool) -> str:
    if each.dropped is not None:
        return f"Dropped ({each.dropped.replace('_', ' ')}): {_dropped(each, each.dropped, rules)}."
    said = {"train": "Kept for training", "validation": "Kept for validation"}.get(row.part or "", "Kept")
    turned = " Its sides were exchanged on purpose (--flip)." if row.flipped else ""
    if each.pair.label == "imported":
        return f"{said}, as in the imported file.{turned}"
    if rules.as_published:
        return f"{said}, by the rules of the published system (--as-published).{turned}"
    limits = [f"margin at least {number(rules.min_margin)}"] * (each.pair.label in ("value", "outcome"))
    limits += [f"confidence at least {number(rules.min_confidence)}"] * (each.pair.confidence is not None)
    passed = f" ({', '.join(limits)})" if limits else ""
    tagged = " Pairs with these tags are capped over the whole data set; that cap was not checked here."
    capped = tagged if not (caps_known or {"efficiency_only", "style_only"}.isdisjoint(each.pair.tags)) else ""
    return f"{said}: it passes every filter{passed}.{turned}{capped}"


def _dropped(each: Candidate, reason: DropReason, rules: PairingRules) -> str:
    pair, critics = each.pair, (each.chosen.critic_score, each.rejected.critic_score)
    words: dict[DropReason, str] = {
        "contaminated": "the question is in an evaluation split",
        "held_out": "the question is kept for reinforcement",
        "malformed": "one reply could not be parsed as a step",
        "unvalued": "one trajectory has no known end" if pair.label == "outcome" else "one side has no known reward",
        "not_reached": "the published builder stops above this state: a step there, or the root, has no reward or no "
        "sibling",
        "wrong_trajectory": f"the trajectory's answer has an F1 of {number(each.state.trajectory_f1)}, which is not "
        f"above {number(GOOD_TRAJECTORY)}",
        "not_ranked_apart": "the judge did not rank one first and the other third or later",
        "same_content": "both steps have the same content",
        "few_visits": "too few visits for the judge to be asked",
        "not_picked": "the judge picked two other steps of this state, or none",
        "prompt_cut": "the endpoint seems to have cut the prompt of this state: its steps answer another one",
        "ungrounded": "no passage read so far supports the chosen step",
        "repeated_query": "the chosen query repeats an earlier one on its path",
        "small_margin": "the margin {} is below {}".format(*apart(each.margin, rules.min_margin))
        if each.margin < rules.min_margin
        else "both steps have the same reward",
        "uncertain": "the confidence {} is below {}".format(*apart(pair.confidence or 0.0, rules.min_confidence)),
        "few_draws": f"a step has fewer than {rules.min_draws:,} continuations (effective sample size)",
        "same_findings": f"both steps reveal the same ({percent(pair.in_common, 0)} in common), and "
        + (
            "one trajectory each cannot tell them apart"
            if pair.label == "outcome"
            else "their continuations do not tell them apart: it takes a confidence of "
            f"{SURE_TO_DIFFER:g}, with {DRAWS_TO_DIFFER:,} continuations each"
        ),
        "no_consensus": "the values do not agree with the judge"
        if pair.label == "judge"
        else "no critic prefers it, or all critics were trained on the question"
        if None in critics
        else "the critic scores it {}, and the other {}".format(*apart(*(score or 0.0 for score in critics))),
        "golden_rejected": "the rejected answer equals a gold answer, the chosen one does not, and support is not why",
        "near_identical": "both steps say nearly the same: word similarity {}, above {}".format(
            *apart(pair.similarity, rules.max_similarity)
        ),
        "too_long": f"prompt and longer reply have {each.tokens or 0:,} tokens; "
        f"the limit is {rules.max_row_tokens or 0:,}",
        "duplicate": "another pair of this state has the same content and a margin at least as wide",
        "contradicted": "another pair prefers the opposite, with a margin at least as wide",
        "state_full": f"this state already has its maximum, {counted(rules.max_per_state or 0, 'pair')} "
        "with higher confidence",
        "efficiency_only_cap": f"only path lengths differ: capped at {percent(rules.max_efficiency_only)} of the data "
        "set, which pairs with higher confidence fill",
        "style_only_cap": "both answers contain a gold answer, or neither does: capped at "
        f"{percent(rules.max_style_only)} of the data set, which pairs with higher confidence fill",
    }
    return words[reason]


# -- numbers ---------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Two digits; of small ones, and of those close to 1, as many as tell it from nothing and from 1."""
    if value is None:
        return "unknown"
    if 0 < abs(value) < 0.01:  # noqa: PLR2004 - what two digits would call nothing
        return f"{value:.2g}"
    texts = (f"{value:.{digits}f}" for digits in range(2, 7) if round(value, digits) != 1)
    return next(texts, f"{value:.2f}")


def apart(value: float, limit: float) -> tuple[str, str]:
    """Both with as many digits as it takes to see that they differ, two at least."""
    for digits in range(2, 17):
        texts = f"{value:.{digits}f}", f"{limit:.{digits}f}"
        if texts[0] != texts[1]:
            break
    return texts


def _equation(form: str, terms: Sequence[float], result: float, work: Callable[..., float]) -> str | None:
    """`form` with its terms, and what results, in the fewest digits by which it is true of the numbers as printed, and
    which write a number as 0 or 1 only where it is.

    work: computes the form, of the printed terms. The result is rounded to its own digits, at least two and no more
    than the terms have. None where no number of digits makes it true: the numbers then belong to no such equation.
    """
    for digits in range(2, 13):
        texts = [f"{term:.{digits}f}" for term in terms]
        worked = work(*map(float, texts))
        for fewer in range(digits, 1, -1):
            text = f"{result:.{fewer}f}"
            printed = zip(map(float, [*texts, text]), [*terms, result], strict=True)
            tells = all(shown not in (0, 1) or _equal(shown, value) for shown, value in printed)
            if f"{worked:.{fewer}f}" == text and tells:
                return f"{form.format(*texts)} = {text}"
    return None


_equal = partial(isclose, abs_tol=1e-12)
"""Up to what floats lose."""
