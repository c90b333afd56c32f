"""What a person sees of one question in a terminal: its tree, a step, a pair.

Decides the drawing only; every number and sentence is of a `QuestionView`. Text of models and passages is never markup
here, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from preference.filters import DROP_REASONS
from preference.records import ContinuationResult
from reasonrag.curation.review_screen import mark_differences
from reasonrag.errors import InputError, choices
from reasonrag.rendering import counted
from reasonrag.terminal import counts_text, dollars, on_one_line, print_shown, shown
from reasonrag.viewing.explanations import apart, number, results_in_words
from reasonrag.viewing.question_view import (
    EndView,
    PairView,
    PassageView,
    QuestionView,
    StateView,
    StepStatus,
    StepView,
    TreeView,
)

_STYLES = {"query": "cyan", "evidence": "yellow", "answer": "bold"}
_CHOSEN, _REJECTED, _QUIET = "green", "red", "dim"
_PairRoles: TypeAlias = Mapping[int, tuple[int, int]]
"""By step: in how many kept pairs it is the chosen side, and in how many the rejected one."""
_LEGEND = (
    "#step type, reward, visits (n); +2 -1: chosen in two kept pairs, rejected in one; converged: every continuation "
    "has the same outcome; repeats: same content as that step, whose reward it shares; reveals the same as: "
    "mostly the same findings; unexplored: never continued"
)
STATUS_WORDS: dict[StepStatus, str] = {
    "answer": "answer",
    "failed": "failed",
    "repeated": "repeated",
    "unexplored": "unexplored",
    "settled": "converged",
    "mixed": "open",
}
"""What people read for a status in the record: short, and explained in the legend."""


class _NarrowTree(Tree):
    """A tree that leaves room for what steps say: seven layers take 14 columns."""

    ASCII_GUIDES = ("  ", "| ", "+-", "`-")
    TREE_GUIDES = [  # noqa: RUF012 - as the class above has it
        ("  ", "│ ", "├╴", "└╴"),
        ("  ", "┃ ", "┣╸", "┗╸"),
        ("  ", "║ ", "╠═", "╚═"),
    ]


@dataclass(frozen=True)
class _StepGroup:
    """Where steps are: in a tree, or in a state whose tree is not at hand."""

    name: str
    steps: Mapping[int, StepView]
    marks: _PairRoles


def show_question(view: QuestionView, run: Path) -> None:
    """Its trees, its pairs, and why others were dropped. run: as given, for the commands that are named below."""
    console = _console()
    for line in _about(view):
        console.print(line)
    for position, tree in enumerate(view.trees):
        console.print()
        console.print(_tree(view, tree, _pair_roles(view, tree=position)))
    console.print()
    if view.trees and any(state.tree is None for state in view.states):
        console.print(Text(_no_trees(view), style=_QUIET))
    for position, state in enumerate(view.states):
        if state.tree is None:
            console.print(_lone_state(state, _pair_roles(view, state=position)))
    if view.trees or view.states:
        console.print(Text(_LEGEND, style=_QUIET))
        console.print()
    for each in _pairs(view):
        console.print(each)
    again = f"reasonrag show {quote(str(run))} {quote(on_one_line(view.id))}"
    if view.trees or view.pairs:
        print_shown(f"one step with its pairs: {again} --step N")
    if view.pairs:
        print_shown(f"one pair and the reasons for its label: {again} --pair PAIR_ID")


def show_step(view: QuestionView, step: int) -> None:
    """One step in full, in every tree that has it. Raises InputError where none does."""
    console = _console()
    groups = _step_groups(view)
    found = [(group, group.steps[step]) for group in groups if step in group.steps]
    if not found:
        known = sorted({each for group in groups for each in group.steps})
        there = f"its steps are {known[0]} to {known[-1]}" if known else "it has no steps"
        raise InputError(f"question {view.id} has no step {step}; {there}")
    for group, each in found:
        console.print(Text(group.name, style=_QUIET))
        console.print(_headline(each, group.marks.get(each.id, (0, 0)), content=False))
        for line in (*_facts(each), *_prompt(each, view), *_shown_passages(each)):
            console.print(line)
        if each.reasoning:
            console.print(_heading("reasoning"))
            console.print(_indented(Text(shown(each.reasoning), style=_QUIET)))
        console.print(_heading("reply"))
        console.print(_indented(Text(shown(each.response or ""))))
        console.print(*_pairs_of(view, each.id, group), sep="\n")


def show_pair(view: QuestionView, pair_id: str) -> None:
    """One pair by its id, or by how its id begins. Raises InputError where it is not one."""
    matching = [each for each in view.pairs if each.id.startswith(pair_id)] if pair_id else []
    if len({each.id for each in matching}) != 1:
        raise InputError(_no_pair(view, pair_id, matching))
    console = _console()
    for pair in matching:
        chosen, rejected = _sides(view, pair)
        state = view.states[pair.state]
        console.print(
            Text.assemble((f"pair {on_one_line(pair.id)}", "bold"), f"  depth {state.layer}  ", _numbers(pair))
        )
        if state.user is not None:
            console.print(_heading("shared prompt"))
            console.print(_indented(_user_turn(view, state.user, chosen.passages)))
        texts = mark_differences(chosen.response or "", rejected.response or "")
        for name, style, each, text in zip(
            ("chosen", "rejected"), (_CHOSEN, _REJECTED), (chosen, rejected), texts, strict=True
        ):
            title = Text.assemble((f"{name} ", f"bold {style}"), f"#{each.id} {_type(each)}, reward {_reward(each)}")
            console.print(Panel(text, title=title, title_align="left", padding=(0, 1), border_style=style))
        console.print(_heading("why"))
        for caution in pair.cautions:
            console.print(_indented(Text(f"NEEDS REVIEW: {caution}")))
        for reason in pair.why:
            console.print(_indented(Text.assemble((f"{reason.topic}: ", "bold"), shown(reason.text))))


def end_words(name: str) -> str:
    """What the continuations of a question came to, in words: `all_wrong` as `all wrong`."""
    return "mixed outcomes" if name == "mixed" else name.replace("_", " ")


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


# -- a question ------------------------------------------------------------------------------------------------


def _about(view: QuestionView) -> Iterator[Text]:
    ends = ", ".join(end_words(each) for each in dict.fromkeys(view.ends))
    origin = f"{on_one_line(view.dataset)}/{on_one_line(view.split)}"
    outcome = "failed" if view.error else f"outcomes: {ends}"
    yield Text.assemble((on_one_line(view.id), "bold"), f"  {origin}  {outcome}")
    if view.error:
        yield Text(f"{on_one_line(view.error.cause)}: {shown(view.error.message)}", style=_REJECTED)
        yield Text("run the same generate command again to retry it")
    if not view.trees:
        yield from _question(view)
        if not view.error:
            yield Text(_no_trees(view), style=_QUIET)


def _no_trees(view: QuestionView) -> str:
    if not view.states:
        return "none of its steps is in the data set"
    return (
        "trees are missing, so only the states of their pairs are shown. If the run was moved, give its directory: "
        "--trees RUN"
    )


def _question(view: QuestionView) -> Iterator[Text]:
    yield Text(shown(view.question), style="bold")
    if view.golden_answers:
        yield Text.assemble(("gold answers: ", _QUIET), ", ".join(map(on_one_line, view.golden_answers)))
    for criterion in view.rubric or ():
        yield Text.assemble(("criterion: ", _QUIET), on_one_line(criterion))


def _tree(view: QuestionView, tree: TreeView, marks: _PairRoles) -> RenderableType:
    root = [*_question(view), Text(_source(tree), style=_QUIET)]
    drawn: dict[int, Tree] = {0: _NarrowTree(Group(*root), guide_style=_QUIET)}
    for step in tree.steps[1:]:
        drawn[step.id] = drawn[step.parent or 0].add(_headline(step, marks.get(step.id, (0, 0))))
    return drawn[0]


def _source(tree: TreeView) -> str:
    ends = tree.steps[0].ends if tree.steps else []
    calls = f"; {counted(tree.usage.calls, 'completion')}" if tree.usage.calls else ""  # unknown for imported trees
    cost = f", {dollars(tree.usage.cost_usd)}" if tree.usage.cost_usd else ""
    came = f"; {counted(_results(ends).total(), 'continuation')}: {results_in_words(_results(ends))}" if ends else ""
    recipe = on_one_line(tree.recipe.name)
    return f"{on_one_line(tree.source)}: recipe {recipe}, seed {tree.seed}{calls}{cost}{came}"


def _lone_state(state: StateView, marks: _PairRoles) -> RenderableType:
    name = f"depth {state.layer}" + (f", {state.action}" if state.action else "")
    drawn = _NarrowTree(Text(f"state {on_one_line(state.id)}, {name}", style=_QUIET), guide_style=_QUIET)
    for step in state.steps:
        drawn.add(_headline(step, marks.get(step.id, (0, 0))))
    return drawn


def _headline(step: StepView, marks: tuple[int, int], *, content: bool = True) -> Text:
    """A step on one line, cut where the terminal ends."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"#{step.id} ", _QUIET)
    line.append(_type(step), _STYLES.get(step.type or "", _REJECTED))
    line.append(f" {_reward(step)}")
    if step.visits:
        line.append(f" n{step.visits}", _QUIET)
    if step.reward is None and step.value is not None and step.visits:
        line.append(f" (value {number(step.value)})", _QUIET)
    for sign, times, style in (("+", marks[0], _CHOSEN), ("-", marks[1], _REJECTED)):
        if times:
            line.append(f" {sign}{times}", f"bold {style}")
    if step.fate in ("settled", "unexplored"):
        line.append(f" {STATUS_WORDS[step.fate]}", _QUIET)
    if step.same_as is not None:
        line.append(f" repeats #{step.same_as}", _QUIET)
    if step.in_common:
        line.append(f" reveals the same as {', '.join(f'#{each}' for each in step.in_common)}", _QUIET)
    if step.type == "answer" and step.uncounted:
        line.append(" not counted above", _QUIET)
    if content:
        line.append(": ").append(on_one_line(step.content if step.content is not None else step.response or ""))
    return line


def _type(step: StepView) -> str:
    return step.type or (
        "unreadable" if step.parse_error is None else f"unreadable ({on_one_line(step.parse_error.cause)})"
    )


def _reward(step: StepView) -> str:
    """`0.48`, for an answer with its score: `0.48 F1 1.00`; `?` where it is not known."""
    reward = "?" if step.reward is None else number(step.reward)
    return f"{reward} {score}" if (score := _score(step)) else reward


def _score(step: StepView) -> str:
    if step.type != "answer" and not (step.terminal and step.f1 is not None):
        return ""
    found = [] if step.f1 is None else [f"F1 {number(step.f1)}"]
    if step.outcome is not None and step.outcome.value != step.f1:
        found.append(f"{on_one_line(step.outcome.name)} {number(step.outcome.value)}")
    return " ".join(found)


# -- pairs -----------------------------------------------------------------------------------------------------


def _pairs(view: QuestionView) -> Iterator[RenderableType]:
    kept = [each for each in view.pairs if each.dropped is None]
    yield _heading(f"pairs: {len(kept):,} kept of {len(view.pairs):,} candidates")
    for pair in kept:
        chosen, rejected = _sides(view, pair)
        layer = view.states[pair.state].layer
        yield _indented(Text.assemble((on_one_line(pair.id), "bold"), f"  depth {layer}  ", _numbers(pair)))
        for sign, style, step in (("+", _CHOSEN, chosen), ("-", _REJECTED, rejected)):
            said = on_one_line(step.content if step.content is not None else step.response or "")
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{sign} ", f"bold {style}").append(f"#{step.id} {_type(step)}: {said}")
            yield _indented(line, by=4)
        yield _indented(Text(_in_short(pair, chosen, rejected), style=_QUIET), by=4)
    dropped = Counter(each.dropped for each in view.pairs)
    if reasons := {str(reason): dropped[reason] for reason in DROP_REASONS if dropped[reason]}:
        yield Text(f"dropped: {counts_text(reasons)}")


def _in_short(pair: PairView, chosen: StepView, rejected: StepView) -> str:
    """Why it was labelled so, on one line: `because 0.36 (4 of 11 right) beats 0.20 (F1 0.50)`."""
    if pair.label == "judge":
        return "because a judge who saw every step of this state picked it"
    if pair.label == "imported":
        return "because the imported file says so"
    if pair.label == "outcome":
        return f"because its own trajectory ended better, by {number(pair.margin)}"
    rewards = "?", "?"
    if chosen.reward is not None and rejected.reward is not None:
        rewards = number(chosen.reward), number(rejected.reward)
        if rewards[0] == rewards[1]:
            rewards = apart(chosen.reward, rejected.reward)
    sides = (f"{reward}{_grounds(step)}" for reward, step in zip(rewards, (chosen, rejected), strict=True))
    return f"because {' beats '.join(sides)}"


def _grounds(step: StepView) -> str:
    """What a reward rests on: ` (4 of 11 right)`."""
    if step.parse_error is not None:
        return " (unreadable)"
    if score := _score(step):
        return f" ({score})"
    if not step.ends:
        return ""
    counts = _results(step.ends)
    right, partly = counts["right"], counts["partly right"]
    also = f", {partly} partly" if partly else ""
    return f" ({right} of {counts.total()} right{also}{f'; {step.uncounted}' if step.uncounted else ''})"


def _results(ends: Sequence[EndView]) -> Counter[ContinuationResult]:
    counts = Counter[ContinuationResult]()
    for end in ends:
        counts[end.came_to] += end.times
    return counts


def _numbers(pair: PairView) -> str:
    parts = [
        f"margin {number(pair.margin)}",
        *([] if pair.confidence is None else [f"confidence {number(pair.confidence)}"]),
        *(each.replace("_", " ") for each in pair.tags),
        *([] if pair.part is None else [pair.part]),
        *(["sides exchanged"] if pair.flipped else []),
        *(["needs review"] if pair.cautions else []),
    ]
    return "  ".join(parts)


def _pairs_of(view: QuestionView, step: int, group: _StepGroup) -> Iterator[RenderableType]:
    """All pairs that a step is a side of, kept and dropped."""
    found = [
        each
        for each in view.pairs
        if step in (each.chosen, each.rejected) and _sides(view, each)[step == each.rejected] is group.steps[step]
    ]
    yield _heading(f"pairs with this step: {len(found):,}" if found else "not in a pair: it has no sibling")
    for pair in found:
        side, other = ("chosen", f"over #{pair.rejected}")
        if step == pair.rejected:
            side, other = "rejected", f"below #{pair.chosen}"
        status = f"dropped: {pair.dropped.replace('_', ' ')}" if pair.dropped else "kept"
        yield _indented(Text(f"{on_one_line(pair.id)}  {side} {other}  {_numbers(pair)}  {status}"))


def _sides(view: QuestionView, pair: PairView) -> tuple[StepView, StepView]:
    state = view.states[pair.state]
    steps = {each.id: each for each in (state.steps if state.tree is None else view.trees[state.tree].steps)}
    return steps[pair.chosen], steps[pair.rejected]


def _pair_roles(view: QuestionView, *, tree: int | None = None, state: int | None = None) -> _PairRoles:
    """The steps of a tree, or of a state whose tree is missing, that are sides of kept pairs."""
    chosen, rejected = Counter[int](), Counter[int]()
    for pair in view.pairs:
        of_it = pair.state == state if tree is None else view.states[pair.state].tree == tree
        if pair.dropped is None and of_it:
            chosen[pair.chosen] += 1
            rejected[pair.rejected] += 1
    return {step: (chosen[step], rejected[step]) for step in chosen.keys() | rejected.keys()}


def _no_pair(view: QuestionView, pair_id: str, matching: list[PairView]) -> str:
    if matching:
        return f"{len(matching):,} pairs of question {view.id} begin with {pair_id!r}; give more characters of the id"
    kept = [each.id for each in view.pairs if each.dropped is None]
    if not kept:
        return f"question {view.id} has no pair {pair_id!r} and no kept pairs; --step N lists all pairs of a step"
    return (
        f"question {view.id} has no pair {pair_id!r}; {choices(pair_id, kept)} (kept pairs); --step N lists all "
        "pairs of a step"
    )


# -- a step ----------------------------------------------------------------------------------------------------


def _step_groups(view: QuestionView) -> list[_StepGroup]:
    """The steps of each tree, without its root, and those of each state whose tree is not at hand."""
    trees = [
        _StepGroup(
            f"in the tree of {on_one_line(tree.source)}",
            {each.id: each for each in tree.steps[1:]},
            _pair_roles(view, tree=i),
        )
        for i, tree in enumerate(view.trees)
    ]
    states = [
        _StepGroup(
            f"in state {on_one_line(state.id)}", {each.id: each for each in state.steps}, _pair_roles(view, state=i)
        )
        for i, state in enumerate(view.states)
        if state.tree is None
    ]
    return trees + states


def _facts(step: StepView) -> Iterator[Text]:
    """What is known of a step, by name."""
    known = {
        "depth": step.layer,
        "turn": step.action,
        "parent": step.parent,
        "status": None if step.fate is None else STATUS_WORDS[step.fate],
        "reward": None if step.reward is None else number(step.reward),
        "rewards by rule": ", ".join(f"{on_one_line(name)} {number(value)}" for name, value in step.rewards.items())
        or None,
        "search": f"{step.visits:,} visits, value {number(step.value)}" if step.value is not None else None,
        "continuations": f"{_results(step.ends).total():,}: {results_in_words(_results(step.ends))}"
        if step.ends and not step.terminal
        else None,
        "not counted": step.uncounted or None,
        "F1, EM": f"{number(step.f1)}, {number(step.em)}" if step.f1 is not None else None,
        "outcome": f"{on_one_line(step.outcome.name)} {number(step.outcome.value)}" if step.outcome else None,
        "sampled": f"{step.draws} times" if step.draws > 1 else None,
        "repeats": None if step.same_as is None else f"step {step.same_as}",
        "supported by passages": _yes(step.grounded),
        "supported by reported evidence": _yes(step.in_evidence),
        "gold passages": step.gold,
        "sampled by": None if step.sampled_by is None else on_one_line(step.sampled_by),
        "temperature": step.sampled_temperature,
        "drawn with a hint": step.hinted,
        "names something unseen": "yes" if step.names_unseen else None,
        "parse error": None
        if step.parse_error is None
        else on_one_line(f"{step.parse_error.cause} {step.parse_error.detail}"),
        "repaired": "yes: the first reply could not be parsed" if step.repaired else None,
    }
    for name, value in known.items():
        if value is not None:
            yield Text.assemble((f"  {name}: ", _QUIET), str(value))


def _yes(value: bool | None) -> str | None:  # noqa: FBT001 - what a field holds
    return None if value is None else "yes" if value else "no"


def _prompt(step: StepView, view: QuestionView) -> Iterator[RenderableType]:
    for name, place in (("system turn", step.system), ("user turn", step.user)):
        if place is not None:
            yield _heading(name)
            yield _indented(_user_turn(view, place, step.passages if name == "user turn" else None))
    if step.sampled_with and step.sampled_with != [step.system, step.user]:
        yield _heading("prompt actually sent")
        for place in step.sampled_with:
            yield _indented(Text(shown(view.texts[place])))


def _user_turn(view: QuestionView, place: int, passages: list[PassageView] | None) -> Text:
    """The turn, with the text of gold passages in bold."""
    text, found, at = view.texts[place], Text(), 0
    for each in passages or ():
        if each.gold and each.start is not None and each.end is not None:
            found.append(shown(text[at : each.start])).append(shown(text[each.start : each.end]), "bold")
            at = each.end
    return found.append(shown(text[at:]))


def _shown_passages(step: StepView) -> Iterator[RenderableType]:
    if step.passages is None:
        return
    yield _heading("passages, in the order of the user turn" if step.passages else "no passage was found")
    for place, each in enumerate(step.passages, start=1):
        score = "" if each.score is None else f"  score {each.score:.3g}"
        line = Text(f"{place}. {on_one_line(each.title)} [{on_one_line(each.id)}]{score}")
        if each.gold:
            line.append("  GOLD", "bold")
        yield _indented(line)


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _indented(what: RenderableType, *, by: int = 2) -> Padding:
    return Padding(what, (0, 0, 0, by), expand=False)
