"""Settings of `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mcts import Recipe
from preference import OutcomeName
from reasonrag.agent.recipe_file import DEFAULT_RECIPE, find_recipe, name_of_recipe
from reasonrag.agent.settings import AgentSettings
from reasonrag.data.settings import QuestionSettings
from reasonrag.data.yaml_text import parse_changes
from reasonrag.files import RUN_HOME
from reasonrag.llm.settings import DEFAULT_TEACHER, BudgetSettings, LimitSettings, ModelSettings, ValueModelSettings
from reasonrag.ranks import DEFAULT_WORKERS, MOST_RANKS, Shard, ShardText
from reasonrag.retrieval.settings import ReadingSettings, RetrievalSettings
from reasonrag.settings import FROM_PATH, Changes, On, Panel, Share, setting


class GenerateSettings(
    LimitSettings,
    BudgetSettings,
    AgentSettings,
    ModelSettings,
    ValueModelSettings,
    ReadingSettings,
    RetrievalSettings,
    QuestionSettings,
):
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
    temperature: float | None = setting("Sampling temperature [default: 1; prorag: 0.9]", Panel.MODEL, ge=0, le=2)
    recipe: Annotated[str, FROM_PATH] = setting(
        "Search and labels: economy, reasonrag, continuation, released, prorag, ragym, chains, or a YAML file that "
        "holds the values of one; see docs/reference/recipes.md",
        Panel.SEARCH,
        default=DEFAULT_RECIPE,
        common=True,
    )
    set: Changes = setting(
        "KEY=VALUE: change a value of the recipe, as in search.siblings=6, search.simulations=32, "
        "search.max_calls=64, agent.top_p=.95 or reward=outcome; repeatable. docs/reference/recipes.md lists them",
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

    @property
    def resolved_recipe(self) -> Recipe:
        """The recipe with all that was set; read anew each time if it is a file. Raises InputError."""
        given = {"outcome": self.outcome, "agent.max_steps": self.max_steps, "agent.temperature": self.temperature}
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
        return RUN_HOME / self.part(QuestionSettings).named(name_of_recipe(self.recipe))
