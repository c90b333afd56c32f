"""A recipe: one search configuration, one reward rule, and how the agent acts. The shipped ones are files in recipes/.

Decides what a recipe holds, which of its values go together, and how the shipped ones are called. Their values stand in
the files with their sources, and nowhere else; `docs/reference/recipes.md` says what each source states, what it leaves
open, and where we differ on purpose. Does not know where other recipes come from, nor what a user changes in one.
YAML is read here, although mcts is otherwise content with pydantic: `preference` looks recipes up by name, too, and may
not import reasonrag. These files are our own; those of users are read by `reasonrag.agent.recipe_file`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, model_validator

from mcts.search import Configuration, SearchConfig, later
from mcts.selection import SCORES

JUDGED_OUTCOMES = frozenset({"judge", "rubric"})
"""Outcomes that a judge decides."""


class AgentDefaults(Configuration):
    """How the agent of a recipe samples and reads where the user does not say. No search reads them."""

    max_steps: int = Field(default=7, ge=1, lt=2**31)
    """With the conclusion."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    """1 is the API's own, which the published ReasonRAG code leaves as it is."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    passage_order: Literal["best-first", "worst-first"] = "best-first"
    steps_by_hops: bool = False
    """Give a question whose hops are known the steps for one search more than hops, if that is more than max_steps."""
    repair: bool = True
    """Give an unreadable reply a repair turn, before it is a failed step."""
    native: bool = False
    """Ask for an agent's tools by the endpoint's own interface, in place of their text."""


class Recipe(Configuration):
    """How a tree is searched and how its steps are then rewarded."""

    name: str
    """That of its file, without the suffix."""
    search: SearchConfig
    reward: Literal["spre", "spre_even", "spre_distinct", "outcome", "value", "rank"]
    """The rule of `mcts.rewards` behind the labels."""
    outcome: str
    """The quality of an answer that is backed up and rewarded; to the search it is only a number."""
    margin_by_layer: bool
    """Divide margins between siblings by alpha**layer, so that deep pairs are not penalised."""
    judge_sees_gold: bool = False
    """Show judges the correct answers, including judges of answers and those that guide the search."""

    unreadable: Literal["wrong", "missing"] = later("wrong")
    """What a reply is that cannot be read: an answer of quality 0, or an end of unknown quality, which has no reward
    and counts nowhere."""
    forced_answers: Literal["counted", "missing", "none"] = later("counted")
    """An answer that the agent had to give as its steps were spent is one like others, or of unknown quality, as for
    the published builder, which does not see it. None: the last turn is like others; without an answer quality is 0."""
    repairs_count: bool = later(default=False)
    """Treat the reply to a repair turn like any other sample of its state."""
    greedy_continuations: bool = later(default=False)
    """Continue steps at temperature 0."""

    agent: AgentDefaults = Field(default=AgentDefaults(), exclude=True)
    """Recorded by what the agent does, not with the recipe."""

    @property
    def judged(self) -> bool:
        """Whether a judge is asked for anything: in the search, or about answers."""
        return self.search.valuation != "continuation" or self.outcome in JUDGED_OUTCOMES

    @model_validator(mode="after")
    def _values_go_together(self) -> Self:
        """Refuse a value that the search does not use: it would look as if it had an effect."""
        search = self.search
        continues = search.valuation == "continuation"
        if search.selection not in SCORES and search.exploration != 0:
            raise ValueError(
                "search.exploration is c of uct, puct and unit_puct; with selection mixed, chain or group it is 0"
            )
        if search.selection != "mixed" and (search.root_siblings is not None or search.resamples > 0):
            raise ValueError("search.root_siblings and search.resamples go with selection mixed")
        if search.continuations > 1 and not continues:
            raise ValueError("search.continuations is 1 unless search.valuation is continuation")
        if max(search.continuations, search.group or 1) > 1 and self.greedy_continuations:
            raise ValueError(
                "search.continuations and search.group are 1 with greedy_continuations: "
                "at temperature 0 a second one would be the same"
            )
        if (self.reward == "rank") != (search.valuation == "rank"):
            raise ValueError("reward rank goes with search.valuation rank, and no other reward does")
        if self.reward in ("spre", "spre_even") and not continues:
            raise ValueError(f"reward {self.reward} is a mean over continuations, so search.valuation is continuation")
        if self.reward == "rank" and search.alpha != 1:
            raise ValueError("search.alpha is 1 with reward rank, which has no discount")
        if self.judge_sees_gold and not self.judged:
            raise ValueError(
                "judge_sees_gold needs a judge: outcome judge or rubric, or search.valuation score or rank"
            )
        return self


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RECIPES = {
    file.stem: Recipe.model_validate({"name": file.stem, **yaml.load(file.read_bytes(), _LOADER)})  # noqa: S506 - safe
    for file in sorted(Path(__file__).with_name("recipes").glob("*.yaml"))
}
"""The shipped recipes by name."""
