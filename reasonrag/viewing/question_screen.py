"""What a person sees of one question in a terminal: its trees with their pairs, or one pair with all its reasons.

Decides the drawing only; every number and sentence is of a `QuestionView`. Text of models and passages is never markup
here, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from preference.filters import DROP_REASONS
from reasonrag.errors import InputError, choices
from reasonrag.rendering import counts_text
from reasonrag.terminal import on_one_line, print_shown, shown
from reasonrag.viewing.explanations import end_words, number
from reasonrag.viewing.question_view import PairView, QuestionView, StepView

_EXAMPLES = 9
_STYLES = {"query": "cyan", "evidence": "yellow", "answer": "bold"}
_LEGEND = "#step, reward, visits (n); +2 -1: chosen in two kept pairs, rejected in one; converged: always one outcome"


def show_question(view: QuestionView, run: Path) -> None:
    """Its trees, its pairs, and why others were dropped. run: as given, for the command that is named below."""
    console = Console(highlight=False, markup=False, emoji=False)
    for line in _about(view):
        console.print(line)
    for position, tree in enumerate(view.trees):
        of_it = [each for each in view.pairs if view.states[each.state].tree == position]
        agent = f", agent {on_one_line(tree.agent)}" if tree.agent else ""
        title = f"{on_one_line(tree.source)}: recipe {on_one_line(tree.recipe.name)}{agent}, seed {tree.seed}"
        console.print(_drawn(title, tree.steps[1:], of_it))
    for position, state in enumerate(view.states):
        if state.tree is None:
            of_it = [each for each in view.pairs if each.state == position]
            console.print(_drawn(f"state {on_one_line(state.id)}, depth {state.layer}", state.steps, of_it))
    console.print(Text(_LEGEND, style="dim"))
    kept = [each for each in view.pairs if each.dropped is None]
    console.print(Text(f"pairs: {len(kept):,} kept of {len(view.pairs):,} candidates", style="bold"))
    for pair in kept:
        console.print(_pair_title(view, pair))
        for sign, step, said in zip("+-", _sides(view, pair), pair.differ, strict=True):
            text = f"  {sign} #{step.id} {_type(step)}: {on_one_line(said)}"
            console.print(Text(text, no_wrap=True, overflow="ellipsis"))
        console.print(_indented(next((shown(why.text) for why in pair.why if why.topic == "label"), "")))
    dropped = Counter(each.dropped for each in view.pairs)
    if reasons := {str(reason): dropped[reason] for reason in DROP_REASONS if dropped[reason]}:
        console.print(Text(f"dropped: {counts_text(reasons)}"))
    if view.pairs:
        again = f"reasonrag show {quote(str(run))} {quote(on_one_line(view.id))} --pair PAIR_ID"
        print_shown(f"one pair and the reasons for its label: {again}")


def show_pair(view: QuestionView, pair_id: str) -> None:
    """One pair by its id, or by how its id begins. Raises InputError where it is not one."""
    matching = [each for each in view.pairs if each.id.startswith(pair_id)] if pair_id else []
    if len({each.id for each in matching}) != 1:
        known = [each.id for each in matching or view.pairs][:_EXAMPLES]
        there = f"several pairs {pair_id!r}.." if matching else f"no pair {pair_id!r}"
        raise InputError(f"question {view.id} has {there}{f'; {choices(pair_id, known)}' if known else ''}")
    console = Console(highlight=False, markup=False, emoji=False)
    for pair in matching:
        console.print(_pair_title(view, pair))
        if (user := view.states[pair.state].user) is not None:
            console.print(Text("shared prompt", style="bold"))
            console.print(_indented(shown(view.texts[user])))
        for name, step in zip(("chosen", "rejected"), _sides(view, pair), strict=True):
            console.print(Text(f"{name} #{step.id} {_type(step)}, reward {number(step.reward)}", style="bold"))
            console.print(_indented(shown(step.response or "")))
        console.print(Text("why", style="bold"))
        for caution in pair.cautions:
            console.print(_indented(f"NEEDS REVIEW: {caution}"))
        for reason in pair.why:
            console.print(_indented(f"{reason.topic}: {shown(reason.text)}"))


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


def _about(view: QuestionView) -> Iterator[Text]:
    came = "failed" if view.error else f"outcomes: {', '.join(end_words(each) for each in dict.fromkeys(view.ends))}"
    yield Text(f"{on_one_line(view.id)}  {on_one_line(view.dataset)}/{on_one_line(view.split)}  {came}")
    yield Text(shown(view.question), style="bold")
    if view.golden_answers:
        yield Text(f"gold answers: {', '.join(map(on_one_line, view.golden_answers))}")
    if view.error:
        yield Text(f"{on_one_line(view.error.cause)}: {shown(view.error.message)}", style="red")
        yield Text("run the same command again to retry it, if its cause may pass")
    elif not view.trees:
        missing = "trees are missing, so only the states of their pairs are shown. If the run was moved: --trees RUN"
        yield Text(missing if view.states else "no pair of its steps is in the data set")


def _drawn(title: str, steps: Sequence[StepView], pairs: Iterable[PairView]) -> Tree:
    """Steps below those that they follow; without a tree, all in one state. pairs: of them."""
    kept = [each for each in pairs if each.dropped is None]
    chosen, rejected = Counter(each.chosen for each in kept), Counter(each.rejected for each in kept)
    top = _NarrowTree(Text(title, style="dim"), guide_style="dim")
    drawn: dict[int, Tree] = {}
    for step in steps:
        marks = [f"{sign}{of[step.id]}" for sign, of in (("+", chosen), ("-", rejected)) if of[step.id]]
        drawn[step.id] = drawn.get(step.parent or 0, top).add(_headline(step, marks))
    return top


class _NarrowTree(Tree):
    """A tree that leaves room for what steps say: seven layers take 14 columns."""

    TREE_GUIDES = [("  ", "│ ", "├╴", "└╴")] * 3


def _headline(step: StepView, marks: Sequence[str]) -> Text:
    """A step on one line, cut where the terminal ends."""
    line = Text(f"#{step.id} ", no_wrap=True, overflow="ellipsis")
    line.append(_type(step), _STYLES.get(step.type or "", "red"))
    said = ["?" if step.reward is None else number(step.reward)]
    said += [f"F1 {number(step.f1)}"] if step.type == "answer" and step.f1 is not None else []
    said += [f"n{step.visits}"] if step.visits else []
    said += marks
    said += [word for fate, word in (("settled", "converged"), ("unexplored", "unexplored")) if step.fate == fate]
    said += [] if step.same_as is None else [f"repeats #{step.same_as}"]
    said += [f"reveals the same as {', '.join(f'#{each}' for each in step.in_common)}"] if step.in_common else []
    text = step.content if step.content is not None else step.response or ""
    return line.append(f" {' '.join(said)}: {on_one_line(text)}")


def _type(step: StepView) -> str:
    failed = "unreadable" if step.parse_error is None else f"unreadable ({on_one_line(step.parse_error.cause)})"
    return step.type or failed


def _pair_title(view: QuestionView, pair: PairView) -> Text:
    sure = [] if pair.confidence is None else [f"confidence {number(pair.confidence)}"]
    told = [*sure, *(each.replace("_", " ") for each in pair.tags), *([pair.part] if pair.part else [])]
    told += [*(["sides exchanged"] if pair.flipped else []), *(["needs review"] if pair.cautions else [])]
    where = f"depth {view.states[pair.state].layer}  margin {number(pair.margin)}"
    return Text.assemble((on_one_line(pair.id), "bold"), "  ", "  ".join([where, *told]))


def _sides(view: QuestionView, pair: PairView) -> tuple[StepView, StepView]:
    state = view.states[pair.state]
    steps = {each.id: each for each in (state.steps if state.tree is None else view.trees[state.tree].steps)}
    return steps[pair.chosen], steps[pair.rejected]
