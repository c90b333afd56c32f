"""What a terminal and a notebook show of one question: its trees with their pairs, or one pair with all its reasons.

Decides what stands where; every number and sentence is of a `QuestionView`. Nothing is told by colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preference.filters import DROP_REASONS
from reasonrag.errors import InputError, choices
from reasonrag.rendering import Outline, Part, Table, Verdict, counted, counts_text
from reasonrag.terminal import on_one_line
from reasonrag.viewing.explanations import end_words, number

if TYPE_CHECKING:
    from reasonrag.viewing.question_view import PairView, QuestionView, StepView

_EXAMPLES = 9
_LONGEST = 200
"""Of a step or a side in a list, in characters."""


def question_parts(view: QuestionView) -> Iterator[Part]:
    """Its trees, its pairs, and why others were dropped."""
    yield from _about(view)
    kept = [each for each in view.pairs if each.dropped is None]
    for position, tree in enumerate(view.trees):
        agent = f", agent {tree.agent}" if tree.agent else ""
        title = f"{tree.source}: recipe {tree.recipe.name}{agent}, seed {tree.seed}"
        yield _outline(title, tree.steps[1:], [each for each in kept if view.states[each.state].tree == position])
    for position, state in enumerate(view.states):
        if state.tree is None:
            title = f"state {state.id}, depth {state.layer}"
            yield _outline(title, state.steps, [each for each in kept if each.state == position])
    yield "#step, reward, visits (n); converged: always one outcome"
    yield "+2 -1: chosen in two kept pairs, rejected in one"
    rows = [(_pair_title(view, each), tuple(_pair_lines(view, each))) for each in kept]
    yield Table(f"pairs: {len(kept):,} kept of {counted(len(view.pairs), 'candidate')}", rows, texts=True)
    dropped = Counter(each.dropped for each in view.pairs)
    if reasons := {str(reason): dropped[reason] for reason in DROP_REASONS if dropped[reason]}:
        yield f"dropped: {counts_text(reasons)}"


def pair_parts(view: QuestionView, pair_id: str) -> Iterator[Part]:
    """One pair by its id, or by how its id begins. Raises InputError where it is not one."""
    matching = [each for each in view.pairs if each.id.startswith(pair_id)] if pair_id else []
    if len({each.id for each in matching}) != 1:
        known = [each.id for each in matching or view.pairs][:_EXAMPLES]
        there = f"several pairs {pair_id!r}.." if matching else f"no pair {pair_id!r}"
        raise InputError(f"question {view.id} has {there}{f'; {choices(pair_id, known)}' if known else ''}")
    for pair in matching:
        yield from (Verdict(f"warning: needs review: {caution}") for caution in pair.cautions)
        user = view.states[pair.state].user
        rows = [] if user is None else [("shared prompt", view.texts[user])]
        for name, step in zip(("chosen", "rejected"), _sides(view, pair), strict=True):
            rows.append((f"{name} #{step.id} {_type(step)}, reward {number(step.reward)}", step.response or ""))
        rows += [(f"{reason.topic}:", reason.text) for reason in pair.why]
        title = _pair_title(view, pair)
        yield Table(title, [(name, tuple(text.splitlines())) for name, text in rows], texts=True)


def _about(view: QuestionView) -> Iterator[Part]:
    came = "failed" if view.error else f"outcomes: {', '.join(end_words(each) for each in dict.fromkeys(view.ends))}"
    yield f"{view.id}  {view.dataset}/{view.split}  {came}"
    yield view.question
    if view.golden_answers:
        yield f"gold answers: {', '.join(view.golden_answers)}"
    if view.error:
        yield Verdict(f"error: {view.error.cause}: {view.error.message}")
        yield "run the same command again to retry it, if its cause may pass"
    elif view.no_pair:
        yield Verdict(f"warning: no pair. {view.no_pair}")
    if not view.trees and not view.error:
        missing = "trees are missing, so only the states of their pairs are shown. If the run was moved: --trees RUN"
        yield missing if view.states else "no pair of its steps is in the data set"


def _outline(title: str, steps: Sequence[StepView], kept: Sequence[PairView]) -> Outline:
    """Steps below those that they follow; without a tree, all in one state. kept: pairs of them."""
    chosen, rejected = Counter(each.chosen for each in kept), Counter(each.rejected for each in kept)
    top = Outline([title])
    drawn: dict[int, Outline] = {}
    for step in steps:
        marks = [f"{sign}{of[step.id]}" for sign, of in (("+", chosen), ("-", rejected)) if of[step.id]]
        drawn[step.id] = Outline([f"#{step.id}", _type(step), _said(step, marks)])
        drawn.get(step.parent or 0, top).below.append(drawn[step.id])
    return top


def _said(step: StepView, marks: Sequence[str]) -> str:
    said = ["?" if step.reward is None else number(step.reward)]
    said += [f"F1 {number(step.f1)}"] if step.type == "answer" and step.f1 is not None else []
    said += [f"n{step.visits}"] if step.visits else []
    said += marks
    said += [word for fate, word in (("settled", "converged"), ("unexplored", "unexplored")) if step.fate == fate]
    said += [] if step.same_as is None else [f"repeats #{step.same_as}"]
    said += [f"reveals the same as {', '.join(f'#{each}' for each in step.in_common)}"] if step.in_common else []
    return f"{' '.join(said)}: {_cut(step.content if step.content is not None else step.response or '')}"


def _cut(text: str) -> str:
    line = on_one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _type(step: StepView) -> str:
    failed = "unreadable" if step.parse_error is None else f"unreadable ({step.parse_error.cause})"
    return step.type or failed


def _pair_title(view: QuestionView, pair: PairView) -> str:
    sure = [] if pair.confidence is None else [f"confidence {number(pair.confidence)}"]
    told = [*sure, *(each.replace("_", " ") for each in pair.tags), *([pair.part] if pair.part else [])]
    told += [*(["sides exchanged"] if pair.flipped else []), *(["needs review"] if pair.cautions else [])]
    where = f"depth {view.states[pair.state].layer}  margin {number(pair.margin)}"
    return "  ".join([pair.id, where, *told])


def _pair_lines(view: QuestionView, pair: PairView) -> Iterator[str]:
    for sign, step, said in zip("+-", _sides(view, pair), pair.differ, strict=True):
        yield f"{sign} #{step.id} {_type(step)}: {_cut(said)}"
    yield next((why.text for why in pair.why if why.topic == "label"), "")


def _sides(view: QuestionView, pair: PairView) -> tuple[StepView, StepView]:
    state = view.states[pair.state]
    steps = {each.id: each for each in (state.steps if state.tree is None else view.trees[state.tree].steps)}
    return steps[pair.chosen], steps[pair.rejected]
