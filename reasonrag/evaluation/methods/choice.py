"""Which method answers, and what it may use: the settings of `evaluate` as its methods see them. Knows no method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from reasonrag.errors import InputError

BaselineName = Literal["direct", "cot", "rag", "iter-retgen", "search-r1", "ircot", "flare", "adaptive-rag-prompted"]
MethodName = Literal["agent", BaselineName]
SEARCHLESS: tuple[MethodName, ...] = ("direct", "cot")
"""Methods that are shown no passages."""
SEEN: Final = "trained_questions"
ConditionName = Literal[
    "renderer", "top_k", "max_steps", "max_passage_chars", "passage_order", "style", "agent", "trained_questions"
]
ALLOWABLE: tuple[ConditionName, ...] = get_args(ConditionName)
"""Conditions that may differ from training if --allow names them."""


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """A method by its name.

    steps: at most so many completions in one attempt of any method, repair turns apart. best_of: replies in every
    state, of which a critic takes one. vote: attempts that vote. repair: whether an unreadable reply gets another turn.
    """

    name: MethodName
    steps: int
    best_of: int | None = None
    vote: int | None = None
    repair: bool = True

    @property
    def of_agent(self) -> bool:
        return self.name == "agent"

    @property
    def searches(self) -> bool:
        """Whether it is shown passages."""
        return self.name not in SEARCHLESS

    @property
    def draws(self) -> int:
        """Replies, or whole attempts, of which one is taken."""
        return self.best_of or self.vote or 1

    @property
    def most_searches(self) -> int:
        """Queries that one attempt may send to the retriever: those of ReasonRAG's agent with so many steps."""
        from reasonrag.agent.protocols.known import most_searches  # loads what --help does not need

        return most_searches(self.steps, None)

    def check(self) -> None:
        """Raises InputError for a method that searches, with a budget for no search."""
        if not self.of_agent and self.searches and not self.most_searches:
            raise InputError(
                f"--max-steps {self.steps} leaves no search to --method {self.name}: N steps are at most N "
                "completions and (N-1)//2 searches. Give 3 or more"
            )

    @property
    def most_replies(self) -> int:
        """Most replies of one attempt, repair turns apart."""
        beside_searches = {"iter-retgen": 0, "search-r1": 1, "ircot": 0, "adaptive-rag-prompted": 1}
        if self.name in ("agent", "flare"):
            return self.steps * self.draws
        return self.most_searches + beside_searches[self.name] if self.name in beside_searches else 1
