"""Prompts taken out of states that others made: which system turn belongs to which turn of the agent.

Decides the turn by what a state shows (thoughts, passages, kinds of replies), and whether the renderer gives a state's
prompt byte for byte, so that a model which is trained on it can be asked in the same words. Knows no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from preference import AgentAction
from preference.candidate_records import QuestionRecord, StateRecord
from preference.published.repairs import REFERENCE, THOUGHTS
from reasonrag.agent.prompting import Prompts, render_prompt, style_recorded
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import AnswerStyle

_END = "</reference>"
_TITLE, _END_OF_PASSAGE = "Wikipedia Title: ", "\n\n"
_QUERY = "<query>"
AnyRecord = TypeVar("AnyRecord", StateRecord, QuestionRecord)


@dataclass(frozen=True)
class ImportedPrompts:
    """The prompts of imported states. fitting: ids of the questions all of whose states they give byte for byte.

    unseen: turns that no state shows: the prompt of later thoughts is then that of the first, of the conclusion ours.
    """

    prompts: Prompts
    fitting: frozenset[str]
    states: int
    fitting_states: int
    unseen: tuple[AgentAction, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What these prompts do not cover."""
        warnings = []
        if other := self.states - self.fitting_states:
            warnings.append(
                f"{other:,} of {self.states:,} prompts are worded or laid out otherwise than those that were taken "
                "out; their questions name no renderer"
            )
        if self.unseen:
            instead = {"think": "that of the first turn", "conclude": "ours"}
            listed = ", ".join(f"{name} ({instead[name]} is used)" for name in self.unseen)
            warnings.append(f"no row shows the prompt of: {listed}")
        return warnings


def imported_prompts(read: Callable[[], Iterable[StateRecord]], ours: Prompts) -> ImportedPrompts | None:
    """The prompts that states were rendered with: `ours` if they give all of them, else those whose system turns occur
    most often. None if there is no system turn for thinking or for reading, or none of the states fits.

    read: begins the states anew; called several times.
    """
    styles: tuple[AnswerStyle, ...] = ("short", "long")
    for each in (replace(ours, style=style) for style in styles):
        if all(is_rendered_by(each, state) for state in read()):
            return _fitted(each, read())
    begin, think, reading, conclude = _system_turns(read())
    first = begin or think
    if first is None or reading is None:
        return None
    apart = {"begin": begin} if begin and think not in (None, begin) else {}
    found = ours.changed(think=think or first, read=reading, **({"conclude": conclude} if conclude else {}), **apart)
    fitted = _fitted(found, read())
    if not fitted.fitting:
        return None
    turns: dict[AgentAction, str | None] = {"think": think, "conclude": conclude}
    return replace(fitted, unseen=tuple(name for name, text in turns.items() if text is None))


def with_prompts(record: AnyRecord, imported: ImportedPrompts) -> AnyRecord:
    """A record that names the renderer and the style of its question's prompts, where they are known."""
    if record.question_id not in imported.fitting:
        return record
    known = {"renderer": renderer_hash(imported.prompts), "style": style_recorded(imported.prompts.style)}
    return record.model_copy(update={"origin": record.origin.model_copy(update=known)})


def is_rendered_by(prompts: Prompts, state: StateRecord) -> bool:
    """Whether the renderer gives the state's prompt byte for byte."""
    if not _has_both_turns(state):
        return False
    question, thoughts, passages = shown_in(state.prompt[-1].content)
    actions: tuple[AgentAction, ...] = ("think", "conclude") if passages is None else ("read",)
    rendered = partial(render_prompt, question=question, thoughts=[thoughts] * bool(thoughts), passages=passages or [])
    return any(list(rendered(prompts, action)) == state.prompt for action in actions)


def shown_in(user: str) -> tuple[str, str, list[Passage] | None]:
    """Question, thoughts and passages of a user turn in our layout. None: it shows no passages."""
    said, reads, reference = user.partition(REFERENCE)
    question, _, thoughts = said.removeprefix("Question: ").partition(THOUGHTS)
    return question, thoughts, _passages(reference.removesuffix(_END)) if reads else None


def _passages(reference: str) -> list[Passage]:
    """The passages of a reference in our layout; of any other some that the renderer lays out otherwise."""
    if not reference:
        return []
    inside = reference.removeprefix(_TITLE).removesuffix(_END_OF_PASSAGE)
    texts = (each.partition("\n") for each in inside.split(_END_OF_PASSAGE + _TITLE))
    return [Passage(str(number), title, text) for number, (title, _, text) in enumerate(texts)]


def _has_both_turns(state: StateRecord) -> bool:
    return [turn.role for turn in state.prompt] == ["system", "user"]


def _fitted(prompts: Prompts, states: Iterable[StateRecord]) -> ImportedPrompts:
    fits = [(state.question_id, is_rendered_by(prompts, state)) for state in states]
    unfit = {question for question, fit in fits if not fit}
    every = {question for question, _ in fits}
    return ImportedPrompts(prompts, frozenset(every - unfit), len(fits), sum(fit for _, fit in fits))


def _system_turns(states: Iterable[StateRecord]) -> tuple[str | None, str | None, str | None, str | None]:
    """The most frequent system turns of the first turn, of later thoughts, of reading and of concluding.

    A later turn without passages concludes if neither its words nor any reply to it has a query: it may only answer.
    """
    first, read, later = Counter[str](), Counter[str](), Counter[str]()
    searching: set[str] = set()
    for state in filter(_has_both_turns, states):
        system, user = (turn.content for turn in state.prompt)
        turns = read if REFERENCE in user else later if THOUGHTS in user else first
        turns[system] += 1
        if _QUERY in system or any(step.action_type == "query" for step in state.steps):
            searching.add(system)
    think = Counter({system: count for system, count in later.items() if system in searching})
    return _most(first), _most(think), _most(read), _most(later - think)


def _most(turns: Counter[str]) -> str | None:
    return turns.most_common(1)[0][0] if turns else None
