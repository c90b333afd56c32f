"""Outcomes: the value of an answer for search and labels, by gold answers, a judge, a rubric or a user's function.

Decides what each of them needs of a question, what a judge of answers sees, and that the same answer after the same
reasoning is judged once. An unreadable judgement is missing: the answer then has no outcome and counts nowhere. Does
not know trees, nor how labels use an outcome; no judge is assumed to be right.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

from mcts.recipe import JUDGED_OUTCOMES
from preference import Message
from preference.answer_scores import builder_f1, evident_f1, in_language, label_cover_em, prorag_f1
from preference.records import OF_THE_STATE
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import Judgement
from reasonrag.agent.prompting import render_answer
from reasonrag.data.multiple_choice import choice_accuracy, in_words, options_of
from reasonrag.data.questions import Question, require_golden_answers
from reasonrag.errors import InputError, OutcomeError
from reasonrag.llm.offline import rehearsed_judge

_PUBLISHED: dict[str, Callable[[str, list[str]], float]] = {"builder_f1": builder_f1, "prorag_f1": prorag_f1}
OF_GOLDEN_ANSWERS = frozenset({"f1", "em", "evident_f1", "choice", *_PUBLISHED})
"""Outcomes decided by gold answers."""
RIGHT_FROM = 0.5
"""Judge's score from which an answer counts as right: on its scale 50 of 100, half right (prompts/answer.txt)."""
JUDGED_FROM = -(10**6)
"""Sample number of an answer's judgement, below those of all judgements of steps."""
EVIDENT_F1_VERSION = 3
"""Of the rule behind that name, and part of a run's identity: another one for every change of what it gives."""

OutcomeFunction = Callable[[Question, str], float]
"""(question, answer) -> the answer's value in [0, 1]."""


class AnswerValuer(Protocol):
    """Values the answers to one question when gold answers do not."""

    rubric: tuple[str, ...]
    """The criteria, if answers are judged by a rubric."""

    async def value(self, agent: Agent, step: AgentStep, /) -> Judgement[float]:
        """Value the answer of a step. Raises ModelError or OutcomeError.

        agent: its model is asked, if one is needed.
        """


async def with_value(step: AgentStep, valuer: AnswerValuer | None, agent: Agent) -> AgentStep:
    """The step with its answer's value; unchanged if it is not an answer or there is no valuer."""
    if valuer is None or step.action_type != "answer":
        return step
    return step._replace(judged=await valuer.value(agent, step))


def outcome_of(step: AgentStep, name: str, *, language: str | None = None) -> float | None:
    """Quality of a step's answer, in [0, 1]; None if its judgement is missing, 0 for any other step. language: of the
    corpus, which says how numbers are read."""
    if step.action_type != "answer":
        return 0.0
    if name not in OF_GOLDEN_ANSWERS:
        return step.judged.value if step.judged else 0.0
    asked, golds, said = step.state.question.question, step.state.question.golden_answers, step.content or ""
    if name == "choice":
        return choice_accuracy(asked, golds, said) or 0.0
    if name in _PUBLISHED:
        return _PUBLISHED[name](in_words(asked, said), golds)
    if name == "evident_f1" and step.f1 is not None and step.in_evidence is not False:
        said = in_language(in_words(asked, said), language)
        return evident_f1(said, [in_language(each, language) for each in golds])
    return {"em": step.em, "f1": step.f1}.get(name) or 0.0


def rubric_identity(rubric: Sequence[str]) -> dict[str, str]:
    """What records tell of the criteria of a run; nothing without any."""
    return {"rubric_sha256": hashlib.sha256("\n".join(rubric).encode()).hexdigest()} if rubric else {}


def judge_agrees(score: float | None, answer: str | None, golden_answers: Sequence[str]) -> bool | None:
    """Whether a judge's score and the gold answers both call an answer right, or both wrong; None where one of them
    says nothing. By gold answers it is right where one stands in it, as labels compare words."""
    if score is None or answer is None or not golden_answers:
        return None
    return (score >= RIGHT_FROM) == (label_cover_em(answer, golden_answers) == 1)


FEWEST_JUDGED, POOR = 10, 0.75
"""Answers from which the agreement of a judge with gold answers is told, and the share below which it is a warning."""


def poor_judge(judge: str, agreed: int, of: int) -> list[str]:
    """A warning where a judge often contradicts the gold answers."""
    if of < FEWEST_JUDGED or agreed >= POOR * of:
        return []
    return [f"{judge} agrees with gold answers on only {agreed:,} of {of:,} answers: do not rely on its scores"]


def counts(step: AgentStep, *, unreadable: str, forced_answers: str) -> bool:
    """Whether the end of a path has an outcome at all, by these fields of the recipe."""
    if step.parse_error:
        return unreadable != "missing" and step.parse_error.cause not in OF_THE_STATE
    return step.state.action != "conclude" or forced_answers != "missing"


# -- valuers --------------------------------------------------------------------------------------------------------


@dataclass
class AnswerJudge:
    """Has the agent's model score the answers to one question, by a rubric if there is one.

    gold: show the judge the gold answers. sample: sample number of its draws.
    """

    rubric: tuple[str, ...]
    gold: bool
    sample: int
    _judgements: dict[tuple[Message, ...], Judgement[float]] = field(default_factory=dict)
    _asking: defaultdict[tuple[Message, ...], asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def value(self, agent: Agent, step: AgentStep, /) -> Judgement[float]:
        """Judges an answer once, even for concurrent callers: the same draw requested twice would be paid twice. The
        judge is shown everything that was read on the way."""
        state = step.state
        prompt = render_answer(
            agent.prompts,
            question=state.question.question,
            thoughts=(*state.thoughts, step.response),
            answer=step.content or "",
            golden_answers=state.question.golden_answers if self.gold else (),
            passages=state.read,
            rubric=self.rubric,
        )
        async with self._asking[prompt]:
            if prompt not in self._judgements:
                judgement = await agent.caller.score(state.question.id, prompt, self.sample)
                agent.spending.judgements += judgement.calls
                self._judgements[prompt] = judgement
        return self._judgements[prompt]


@dataclass
class FunctionValuer:
    """Values the answers to one question by a function of the user's, each different text once."""

    name: str
    function: OutcomeFunction
    rubric: tuple[str, ...] = ()
    _values: dict[str, float] = field(default_factory=dict)

    async def value(self, _agent: Agent, step: AgentStep, /) -> Judgement[float]:
        """The function's value; it runs in the event loop's thread, so that it need not be thread-safe."""
        answer = step.content or ""
        if answer not in self._values:
            self._values[answer] = self._call(step.state.question, answer)
        return Judgement(self._values[answer], calls=0)

    def _call(self, question: Question, answer: str) -> float:
        try:
            found: Any = self.function(question, answer)
        except Exception as error:
            raise OutcomeError(
                f"the outcome function {self.name} raised {type(error).__name__}: {error}, for the answer {answer!r}"
            ) from error
        value = float(found) if isinstance(found, Real) else math.nan
        if not 0 <= value <= 1:
            raise OutcomeError(
                f"the outcome function {self.name} must return a number from 0 to 1; for the answer {answer!r} it "
                f"returned {found!r}"
            )
        return value


# -- a run's rule ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeRule:
    """How the answers of a run are valued.

    name: in records and configuration. rubric: for questions without their own. function: the user's.
    """

    name: str
    rubric: tuple[str, ...] = ()
    function: OutcomeFunction | None = None

    @property
    def judged(self) -> bool:
        return self.name in JUDGED_OUTCOMES

    @property
    def prompts(self) -> tuple[str, ...]:
        """Names of prompts used only by this outcome."""
        return {"judge": ("answer",), "rubric": ("rubric",)}.get(self.name, ())

    @property
    def identity(self) -> dict[str, str | int]:
        """What decides this outcome and is in neither recipe, prompts nor questions."""
        if self.name == "evident_f1":
            return {"outcome_rule": EVIDENT_F1_VERSION}
        return {**rubric_identity(self.rubric)}

    def check(self, question: Question) -> None:
        """Raises ValueError for a question whose answers cannot be valued."""
        if self.name in OF_GOLDEN_ANSWERS:
            require_golden_answers(question)
            if self.name == "choice" and not options_of(question.question):
                raise ValueError(
                    "metadata.choices: the question has no options to choose from; name them there, or take another "
                    "--outcome"
                )
        elif self.name == "rubric" and not self.rubric_of(question):
            raise ValueError(
                "metadata.rubric: the question has no rubric; give it one, or --rubric FILE for all that have none"
            )

    def rubric_of(self, question: Question) -> tuple[str, ...]:
        """The question's criteria: its own rubric, else the run's."""
        return (question.rubric or self.rubric) if self.name == "rubric" else ()

    def valuer(self, question: Question, *, gold: bool, sample: int = JUDGED_FROM) -> AnswerValuer | None:
        """The valuer of a question's answers; None if its gold answers decide.

        gold: show a judge the gold answers. sample: sample number of its draws.
        """
        if self.function is not None:
            return FunctionValuer(self.name, self.function)
        return AnswerJudge(self.rubric_of(question), gold, sample) if self.judged else None


def name_of_function(function: OutcomeFunction) -> str:
    """The name under which a function's outcomes are recorded; it must be distinct from other outcomes."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InputError(f"outcome={function!r} has no name to record; use a function defined by def")
    if name in OF_GOLDEN_ANSWERS | JUDGED_OUTCOMES:
        raise InputError(f"outcome={name}: the function has the name of a built-in outcome; rename it")
    return name


def answers_rehearsed(judge: str, outcome: str, *, reward: str) -> list[str]:
    """A warning where the offline teacher decides what an answer or a step is worth, and so labels and pairs."""
    judged = outcome in JUDGED_OUTCOMES
    if not judged and reward != "rank":
        return []
    return rehearsed_judge(judge, f"{'outcomes' if judged else 'rewards'}, labels and pairs", "--model")
