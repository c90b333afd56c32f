"""Critics as witnesses: their scores of steps, written into the candidates and the best paths of a data set.

Decides which critic may judge which question: none that was trained on it. Does not know what follows from a score;
`preference.filters` and the formats do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel

from preference import Message
from preference.best_path import right_attempts
from preference.candidate_records import PathStep, PlainStep, QuestionRecord, StateRecord, StepRecord, read_lines
from preference.export.export_pairs import questions_of
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.filters import PairingRules, select
from preference.labelled_runs import rewrite_lines
from preference.records import shared_fields
from reasonrag.curation.labels.judge_labels import JUDGING
from reasonrag.errors import InputError
from reasonrag.files import only_writer
from reasonrag.llm.critic import StepText, check_critic, text_of
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.run.scoring import AskedCritic, StepToScore, score_steps

AnyStep = TypeVar("AnyStep", StepRecord, PathStep, PlainStep)


class CriticScores(BaseModel):
    """What the critics of a data set scored."""

    critics: list[str]
    scored: int
    """Different steps that have a score."""
    given_up: int
    """Scores that failed; the same command asks again."""
    seen_by_all_critics: int
    """Questions that every critic was trained on: no critic scored them."""
    calls: int
    session_calls: int

    def rows(self) -> Iterator[tuple[str, object]]:
        lost = f", {self.given_up:,} failed (the same command retries them)" if self.given_up else ""
        yield f"scored by {', '.join(self.critics)}", f"{counted(self.scored, 'step')}{lost}"
        yield "asked of them", f"{counted(self.calls, 'score')}, {self.session_calls:,} new"


@dataclass(frozen=True)
class CriticWitnesses:
    """The critics of a data set, and what they are to score.

    rules: whose pairs are scored, those that no other rule drops alone; None: no pairs. paths: whether best paths are.
    steps: whether those of all right attempts are, or all plain ones. allowed: critics to which there are objections.
    max_calls: of all of them together.
    """

    all: tuple[AskedCritic, ...]
    rules: PairingRules | None
    paths: bool
    steps: Literal["right", "plain"] | None = None
    allowed: bool = False
    max_calls: int | None = None


async def score_by_critics(staged: Path, out: Path, asked: CriticWitnesses, watcher: Watcher) -> CriticScores:
    """Have the steps of pairs and paths scored, one critic after the other, and write the scores there.

    The journal is that of the data set `out`. Raises InputError where a critic may not be used or cannot be asked,
    RunStopped where a cap or a lost endpoint ended it, KeyboardInterrupt where Ctrl-C did: the files are then as they
    were, scores are kept in the journal, and the same call goes on.
    """
    renderers, place = {each.origin.renderer for each in read_lines(staged / QUESTIONS, QuestionRecord)}, out / JUDGING
    for critic, renderer in product(asked.all, renderers):
        if critic.model is None:
            check_critic(critic.found, renderer=renderer, questions=(), allowed=asked.allowed, warn=watcher.warn)
    owed = list(_steps(staged, asked))
    unseen = {question for question, _ in owed if all(each.found.trained_on(question) for each in asked.all)}
    if asked.steps and unseen and len(unseen) == len({question for question, _ in owed}):
        raise InputError(
            "--critic: every critic was trained on all of these questions, so none may score their steps; attempts at "
            "others, or train-critic --folds 2, have a witness"
        )
    with only_writer(place, flag="--out"):
        found = await score_steps(
            [(each, [step for question, step in owed if not each.found.trained_on(question)]) for each in asked.all],
            place,
            asked.max_calls,
            watcher,
        )
    if unseen:
        watcher.warn(
            f"{counted(len(unseen), 'question')} had no witness, as all critics were trained on them: reasonrag "
            "train-critic --folds 2 trains critics for each other's questions"
        )
    known: defaultdict[StepText, list[float]] = defaultdict(list)
    for text, score in chain.from_iterable(scores.items() for scores in found.by_critic):
        known[text].append(score)
    _write_scores(staged, {text: sum(each) / len(each) for text, each in known.items()})
    return CriticScores(
        **shared_fields(found, CriticScores),
        critics=[each.found.name for each in asked.all],
        scored=len(known),
        seen_by_all_critics=len(unseen),
    )


def _steps(staged: Path, asked: CriticWitnesses) -> Iterator[tuple[str, StepToScore]]:
    """Questions and steps to score; some steps several times."""
    if (rules := asked.rules) is not None:
        alone = replace(rules, consensus=False, max_per_state=None)
        for states in questions_of(read_lines(staged / CANDIDATES, StateRecord)):
            for each in select(states, alone):
                if each.dropped is None:
                    state, prompt = each.state, tuple(each.state.prompt)
                    for step in (each.chosen, each.rejected):
                        yield state.question, StepToScore(state.question_id, prompt, step.response)
    for question in read_lines(staged / QUESTIONS, QuestionRecord):
        paths = right_attempts(question) if asked.steps == "right" else [question.path or [] if asked.paths else []]
        for one in [*chain.from_iterable(paths), *(question.plain_steps if asked.steps == "plain" else ())]:
            yield question.question, StepToScore(question.question_id, tuple(one.prompt), one.response)


def _write_scores(staged: Path, known: Mapping[StepText, float]) -> None:
    def scored(prompt: Sequence[Message], step: AnyStep) -> AnyStep:
        return step.model_copy(update={"critic_score": known.get(text_of(prompt, step.response))})

    def scored_state(state: StateRecord) -> StateRecord:
        return state.model_copy(update={"steps": [scored(state.prompt, each) for each in state.steps]})

    def scored_question(question: QuestionRecord) -> QuestionRecord:
        plain = [scored(each.prompt, each) for each in question.plain_steps]
        path = [scored(each.prompt, each) for each in question.path or ()] or None
        return question.model_copy(update={"path": path, "plain_steps": plain})

    rewrite_lines(staged / CANDIDATES, StateRecord, scored_state)
    rewrite_lines(staged / QUESTIONS, QuestionRecord, scored_question)
