"""A teacher whose steps have known values: questions as a small decision process, solved exactly.

A question needs some facts, one after the other. A think turn asks for the next fact, well or badly, or answers too
early; a read turn finds the fact, if the passages hold it, or misses it. What a step is truly worth is the expected
discounted outcome of the *decision* under the policy that goes on: an answer given without all facts is worth what
such answers are worth on average, however lucky this one was. Knows no search and no pairs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

WORDINGS, FACT_WORDINGS = 4, 2
"""Ways to word a query and an evidence; same wordings are the same step. Where steps of different wordings reveal
different things, the second evidence has a sentence more."""
MISSED_WORDINGS = 3
"""Of a hard fact's good queries, how many miss it: the misses of siblings are correlated."""


@dataclass(frozen=True)
class Setting:
    """A kind of questions and of teacher.

    facts: to be found before the answer is known. good: probability of a good query, and of finding a fact that is
    there. right: of the right answer once all facts are found. early: that a think turn answers although facts are
    missing. luck: that such an answer is right all the same; if not, its F1 is `partial` times the share of facts.
    hard: share of facts that most good queries miss. turns: that a fact takes, 2 for a query and its reading, 1 where a
    good query is all it takes. beside: passages that a query shows beside what it asks for, some of them also shown by
    another wording of it; 0: queries that lead to the same show the same.
    """

    name: str
    facts: int = 2
    good: float = 0.6
    right: float = 0.95
    early: float = 0.15
    luck: float = 0.2
    partial: float = 0.0
    hard: float = 0.0
    turns: Literal[1, 2] = 2
    beside: int = 0

    @property
    def max_steps(self) -> int:
        """Room for one fact more than there are, and the answer."""
        return self.turns * (self.facts + 1) + 1


@dataclass(frozen=True)
class State:
    """shown: whether the passages of a read turn hold the next fact."""

    turn: Literal["think", "read"] = "think"
    layer: int = 0
    found: int = 0
    shown: bool = False


@dataclass(frozen=True)
class LabStep:
    """after: the state it leads to; None for an answer. f1: what an answer happens to get. worth: what answering in
    this state is worth on average, undiscounted. reveals: passages that a query shows, or sentences of an evidence;
    None where all that it reveals is in `after`."""

    state: State
    type: Literal["query", "evidence", "answer"]
    text: str
    after: State | None = None
    f1: float = 0.0
    worth: float = 0.0
    grounded: bool | None = None
    reveals: frozenset[str] | None = None


class LabQuestion:
    """One question: which wordings find what, the policy, and the value of everything."""

    def __init__(self, setting: Setting, number: int, *, alpha: float) -> None:
        self.setting, self.number, self.alpha = setting, number, alpha
        dice = random.Random(f"{setting.name}/{number}")
        self._finds: list[set[int]] = []
        for _ in range(setting.facts):
            missed = dice.sample(range(WORDINGS), MISSED_WORDINGS) if dice.random() < setting.hard else []
            self._finds.append(set(range(WORDINGS)) - set(missed))
        self.value = cache(self._value)
        self.choices = cache(self._choices)
        self.undiscounted = cache(self._undiscounted)

    # -- the policy ----------------------------------------------------------------------------

    def sample(self, state: State, dice: random.Random) -> LabStep:
        steps, chances = zip(*self.choices(state), strict=True)
        return dice.choices(steps, chances)[0]

    def most_probable(self, state: State) -> LabStep:
        return max(self.choices(state), key=lambda each: each[1])[0]

    def _choices(self, state: State) -> list[tuple[LabStep, float]]:
        """Every step with its probability."""
        last = state.layer == self.setting.max_steps - 1
        if state.turn == "read" and not last:
            return self._readings(state)
        if state.found == self.setting.facts:
            return self._informed_answers(state)
        answers = 1.0 if last else self.setting.early
        guesses = [(step, answers * chance) for step, chance in self._guesses(state)]
        return guesses if last else guesses + [(step, (1 - answers) * chance) for step, chance in self._queries(state)]

    def _informed_answers(self, state: State) -> list[tuple[LabStep, float]]:
        right, partial = self.setting.right, self.setting.partial
        return [
            (LabStep(state, "answer", "right", f1=1.0, worth=1.0, grounded=True), right),
            (LabStep(state, "answer", "misread", f1=partial, worth=partial, grounded=True), 1 - right),
        ]

    def _guesses(self, state: State) -> list[tuple[LabStep, float]]:
        luck, share = self.setting.luck, self.setting.partial * state.found / self.setting.facts
        worth = luck + (1 - luck) * share
        return [
            (LabStep(state, "answer", "right", f1=1.0, worth=worth, grounded=False), luck),
            (LabStep(state, "answer", f"guess {state.found}", f1=share, worth=worth, grounded=False), 1 - luck),
        ]

    def _queries(self, state: State) -> list[tuple[LabStep, float]]:
        steps = []
        for wording in range(WORDINGS):
            for kind, chance in (("ask", self.setting.good), ("stray", 1 - self.setting.good)):
                shown = kind == "ask" and wording in self._finds[state.found]
                after = State("read", state.layer + 1, state.found, shown)
                if self.setting.turns == 1:
                    after = State("think", state.layer + 1, state.found + shown)
                text = f"{kind} {state.found}.{wording}"
                step = LabStep(state, "query", text, after, reveals=self._passages(kind, wording, shown=shown))
                steps.append((step, chance / WORDINGS))
        return steps

    def _passages(self, kind: str, wording: int, *, shown: bool) -> frozenset[str] | None:
        """The fact, if it is shown, among some that the next wordings show as well; of a stray query its own."""
        if not self.setting.beside:
            return None
        own = wording * self.setting.beside if kind == "stray" else wording
        return frozenset([f"{kind} {own + each}" for each in range(self.setting.beside)] + ["fact"] * shown)

    def _readings(self, state: State) -> list[tuple[LabStep, float]]:
        good, as_before = self.setting.good, State("think", state.layer + 1, state.found)
        none = LabStep(state, "evidence", "None", as_before, reveals=self._sentences())
        astray = LabStep(state, "evidence", "astray", as_before, grounded=True, reveals=self._sentences("astray"))
        if not state.shown:
            return [(none, good), (astray, 1 - good)]
        further = replace(as_before, found=state.found + 1)
        facts = [
            LabStep(
                state,
                "evidence",
                f"fact {state.found}.{each}",
                further,
                grounded=True,
                reveals=self._sentences(*("fact", "astray")[: each + 1]),
            )
            for each in range(FACT_WORDINGS)
        ]
        return [*((each, good / FACT_WORDINGS) for each in facts), (none, (1 - good) / 2), (astray, (1 - good) / 2)]

    def _sentences(self, *said: str) -> frozenset[str] | None:
        return frozenset(said) if self.setting.beside else None

    # -- what is true --------------------------------------------------------------------------

    def worth(self, step: LabStep) -> float:
        """True value of a decision: expected F1 * alpha**steps."""
        if step.after is None:
            return step.worth * self.alpha ** (step.state.layer + 1)
        return self.value(step.after)

    def _value(self, state: State) -> float:
        return sum(chance * self.worth(step) for step, chance in self.choices(state))

    def prospect(self, step: LabStep) -> float:
        """Expected F1 without discount, as a perfect judge with the gold answers would see it; an answer's own F1."""
        return step.f1 if step.after is None else self.undiscounted(step.after)

    def expectation(self, step: LabStep) -> float:
        """The same for a perfect judge without gold answers: an answer counts as such answers do on average."""
        return step.worth if step.after is None else self.undiscounted(step.after)

    def _undiscounted(self, state: State) -> float:
        return sum(chance * self.expectation(step) for step, chance in self.choices(state))
