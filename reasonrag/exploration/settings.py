"""Settings of `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mcts import RECIPES, Recipe
from preference import OutcomeName
from reasonrag.agent.recipe_file import find_recipe, name_of_recipe, parse_changes
from reasonrag.agent.settings import AgentSettings
from reasonrag.data.settings import QuestionSettings
from reasonrag.files import RUN_HOME
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings
from reasonrag.ranks import MOST_RANKS, Shard, ShardText
from reasonrag.retrieval.settings import BEST_FIRST, PassageOrder, ReadingSettings, RetrievalSettings
from reasonrag.settings import FROM_PATH, Address, Changes, ExtraBody, On, Panel, Share, Words, setting

DEFAULT_TEACHER = "gpt-4o"
"""The paper's (November 2026), where OPENAI_API_KEY is set. It is reported, not verified, to be shut down on 14 January
2027; an endpoint that has it no more says so, and the user names another."""
DEFAULT_WORKERS = 2
"""Ranks of a new run on Ray: those of the smallest machine's cores."""
OF_RANKS = ("shard", "on", "workers", "address")
"""Settings that say by which processes a run is explored."""
OF_AGENT = ("max_steps", "temperature", "top_p", "passage_order")
"""Settings that win over the value of this name in the recipe's section `agent`."""


class GenerateSettings(
    LimitSettings, BudgetSettings, AgentSettings, ModelSettings, ReadingSettings, RetrievalSettings, QuestionSettings
):
    """Settings of `generate`."""

    run: Path | None = setting(
        "Run directory; a run that was stopped there is continued [default: runs/<dataset>-<split>-<recipe>]",
        Panel.EXECUTION,
        common=True,
    )
    model: str | None = setting(
        "Teacher: a model name at the endpoint, or offline [default: offline for atlas; otherwise "
        f"{DEFAULT_TEACHER} if OPENAI_API_KEY is set, else required]",
        Panel.MODEL,
        common=True,
    )
    max_steps: int | None = setting(
        "Maximum steps per answer; at the last one the agent must answer [default by recipe: 7; "
        "reasonrag and released 8; prorag and ragym 10]",
        Panel.SEARCH,
        ge=1,
    )
    steps_by_hops: bool = setting(
        "Give a question the steps for one search more than it has hops (3 hops: 9 steps, 4: 11, 8 and more: 19), if "
        "that is more than --max-steps. metadata.hops, a MuSiQue id or the number of gold passages tells",
        Panel.SEARCH,
        default=False,
    )
    passage_order: PassageOrder | None = setting(
        f"Order of passages in a prompt: best-first or worst-first [default: {BEST_FIRST}; released: worst-first]",
        Panel.RETRIEVAL,
    )
    temperature: float | None = setting("Sampling temperature [default: 1; prorag: 0.9]", Panel.MODEL, ge=0, le=2)
    top_p: float | None = setting("Nucleus sampling probability [default: 1; prorag: 0.95]", Panel.MODEL, gt=0, le=1)
    value_model: str | None = setting(
        "Model that continues the teacher's steps, for example the student: rewards are then the "
        "student's. offline: the extractive teacher [default: the teacher]",
        Panel.MODEL,
    )
    value_base_url: Words = setting(
        "OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]", Panel.MODEL, default=[]
    )
    value_extra_body: ExtraBody = setting(
        "JSON object of extra fields for every request to the value model", Panel.MODEL
    )
    recipe: Annotated[str, FROM_PATH] = setting(
        "Search and labels: economy, reasonrag, continuation, released, prorag, ragym, or a YAML file that holds "
        "the values of one; see docs/reference/recipes.md",
        Panel.SEARCH,
        default="economy",
        common=True,
        words=[*RECIPES],
    )
    set: Changes = setting(
        "KEY=VALUE: change a value of the recipe, as in search.siblings=6, search.simulations=32, "
        "search.max_calls=64 or reward=outcome; repeatable. docs/reference/recipes.md lists them",
        Panel.SEARCH,
        default=[],
    )
    outcome: OutcomeName | None = setting(
        "Score of an answer: f1, em, evident_f1 (f1, but 0 if no earlier evidence supports the answer), "
        "builder_f1, prorag_f1 (as the published codes compute it), choice (1 if it names the right one of "
        "metadata.choices), judge or rubric. With judge and rubric the teacher scores, and gold answers are not "
        "needed; these calls are not in search.max_calls [default: the recipe's]",
        Panel.SEARCH,
        common=True,
    )
    rubric: Path | None = setting(
        "Text file with criteria for an answer, one per line, for questions without metadata.rubric; "
        "with --outcome rubric",
        Panel.SEARCH,
    )
    abort_degenerate: Share = setting(
        "Stop if this share of questions shows the same sign of degeneracy and gives no pair; 0: never",
        Panel.EXECUTION,
        default=0.95,
    )

    shard: ShardText | None = setting(
        "Work as one rank of several: i/n is the i-th of n, from 0. It takes the questions whose ids hash to i, in a "
        "folder of its own below the run's; `reasonrag merge` joins them. Caps and rate limits are divided by n",
        Panel.MACHINES,
    )
    on: On = "here"
    workers: int | None = setting(
        f"Ranks at a time with --on ray [default: as many as the run has, else {DEFAULT_WORKERS}]",
        Panel.MACHINES,
        ge=1,
        le=MOST_RANKS,
    )
    address: Address = None

    @property
    def value(self) -> ModelSettings:
        """The value model, as far as it has settings of its own."""
        return ModelSettings(
            model=self.value_model, base_url=self.value_base_url, extra_body=self.value_extra_body, price=self.price
        )

    @property
    def resolved_recipe(self) -> Recipe:
        """The recipe with all that was set; read anew each time if it is a file. Raises InputError."""
        given = {"outcome": self.outcome} | {f"agent.{name}": getattr(self, name) for name in OF_AGENT}
        changes = {key: value for key, value in given.items() if value is not None}
        return find_recipe(self.recipe, parse_changes(self.set) | changes)

    @property
    def rank(self) -> Shard | None:
        return Shard.parse(self.shard) if self.shard else None

    @property
    def parts(self) -> int:
        return self.rank.ranks if self.rank else 1

    @property
    def run_directory(self) -> Path:
        """Of the rank if this is one, else of the whole run."""
        return self.rank.folder(self.whole_run) if self.rank else self.whole_run

    @property
    def whole_run(self) -> Path:
        """--run, or the default place, named after questions and recipe."""
        if self.run is not None:
            return self.run
        name = self.part(QuestionSettings).name
        return RUN_HOME / f"{name}-{self.split}-{name_of_recipe(self.recipe)}"
