"""Settings of the commands: their defaults, and where values come from.

Flags > environment (REASONRAG_<NAME>) > `reasonrag.toml` (a table per command) > defaults. This is the only place of
the defaults that are not a recipe's (`mcts.recipes`) or an algorithm's.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mcts import RecipeName
from reasonrag.errors import InputError, choices

ENV_PREFIX = "REASONRAG_"
SETTINGS_FILE = "reasonrag.toml"
COMMANDS = ("generate", "pairs", "index")
"""Commands with a table in the settings file."""
INDEX_HOME = Path("indexes")


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class GenerateSettings(Settings):
    """Settings of `generate`. The docstring under a field is its help text."""

    dataset: str | None = Field(
        default=None,
        description="atlas (the default), hotpotqa, 2wikimultihopqa, musique, popqa, bamboogle, nq or triviaqa",
    )
    split: str = Field(default="train", description="Split of the data set")
    limit: int | None = Field(default=None, ge=1, description="First questions only; may grow between runs")
    data_dir: Path | None = Field(
        default=None, description="Directory with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl"
    )
    questions: Path | None = Field(default=None, description="Your own questions (JSONL) instead of --dataset")
    corpus: Path | None = Field(default=None, description="Your own corpus (JSONL)")
    index: Path | None = Field(default=None, description="A built index, or where to keep the one that is built")
    index_home: Path = Field(default=INDEX_HOME, description="Where indexes go that have no --index")
    run: Path = Field(description="Run directory; an interrupted run in it is continued")
    model: str | None = Field(
        default=None, description="Teacher: a model name of the endpoint, or offline [default for atlas: offline]"
    )
    base_url: list[str] = Field(
        default=[],
        description="OpenAI-compatible endpoint; several share the load [default: OPENAI_BASE_URL, else OpenAI's]",
    )
    recipe: RecipeName = Field(default="paper", description="paper, economy or released")
    prompts: Path | None = Field(
        default=None,
        description="Directory of your own prompts, any of think.txt read.txt conclude.txt repair.txt judge.txt",
    )
    siblings: int | None = Field(default=None, ge=1, description="Steps sampled per state [default: the recipe's]")
    continuations: int | None = Field(
        default=None, ge=1, description="Real continuations per step [default: the recipe's]"
    )
    simulations: int | None = Field(default=None, ge=1, description="Simulations per question [default: the recipe's]")
    max_calls_per_question: int | None = Field(
        default=None, ge=1, description="Replies used per question at most [default: the recipe's]"
    )
    max_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps to an answer at most, the last is always a conclusion [default: 7; released: 8]",
    )
    top_k: int = Field(default=3, ge=1, description="Passages per search")  # ReasonRAG
    concurrency: int = Field(default=32, ge=1, description="HTTP requests in flight")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the run")
    temperature: float = Field(
        default=1.0, ge=0, le=2, description="Sampling temperature of the teacher"
    )  # ReasonRAG: the API's own
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus sampling of the teacher")
    max_reply_tokens: int = Field(default=512, ge=1, description="Longest reply in tokens")
    max_cost: float | None = Field(default=None, ge=0, description="Stop before the run costs more, in dollars")
    max_calls: int | None = Field(default=None, ge=0, description="Stop before the run uses more replies")
    max_tokens: int | None = Field(default=None, ge=0, description="Stop before the run uses more tokens")
    price_in: float | None = Field(
        default=None, ge=0, description="Dollars per million prompt tokens [default: the table's]"
    )
    price_out: float | None = Field(
        default=None, ge=0, description="Dollars per million completion tokens [default: the table's]"
    )
    rpm: int | None = Field(
        default=None, ge=1, description="Requests per minute and endpoint [default: what its headers say]"
    )
    tpm: int | None = Field(
        default=None, ge=1, description="Tokens per minute and endpoint [default: what its headers say]"
    )
    timeout: float = Field(default=300.0, gt=0, description="Seconds after which a request without answer is given up")

    @field_validator("base_url", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        """The environment separates addresses by white space."""
        return value.split() if isinstance(value, str) else value


MAX_STEPS: dict[RecipeName, int] = {"paper": 7, "economy": 7, "released": 8}
"""Step budgets, the conclusion included. `released`: the effective value of the published code."""


class PairsSettings(Settings):
    """Settings of `pairs`."""

    out: Path = Field(description="Directory for RAG_ProGuide.json, dataset_info.json and summary.json")
    min_margin: float = Field(
        default=0.01, ge=0, description="Smallest difference of rewards that makes a pair"
    )  # ReasonRAG
    allow_malformed: bool = Field(default=False, description="Let replies that did not parse be the rejected side")
    all_pairs: bool = Field(
        default=False,
        description="Every valid pair of siblings, not only best against worst per action-type combination",
    )


class IndexSettings(Settings):
    """Settings of `index build`."""

    corpus: Path = Field(description='Passages: JSONL of {"id", "contents": "title\\ntext"}')
    out: Path | None = Field(
        default=None, description="Directory of the index [default: where generate looks for it, in --index-home]"
    )
    index_home: Path = Field(default=INDEX_HOME, description="Where indexes go that have no --out")


AnySettings = TypeVar("AnySettings", bound=Settings)
Source = Literal["flag", "environment", "file"]


def resolve(
    model: type[AnySettings],
    command: str,
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    file: Path = Path(SETTINGS_FILE),
) -> AnySettings:
    """Settings from flags that are not None, then environment, then file, then defaults.

    Raises InputError naming the setting, where its value came from and what is wrong with it.
    """
    environment = os.environ if environment is None else environment
    fields = model.model_fields
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}

    def take(name: str, value: Any, where: str) -> None:
        if name not in fields:
            raise InputError(f"{where}: {command} has no setting {name!r}; {choices(name, fields)}")
        values[name], origin[name] = value, where

    for name, value in _read_table(file, command).items():
        take(name, value, f"{file}, [{command}]")
    for name in fields:
        variable = ENV_PREFIX + name.upper()
        if environment.get(variable):
            take(name, environment[variable], variable)
    for name, value in flags.items():
        if value is not None and value != []:  # a flag that may be repeated, and was not given
            take(name, value, f"--{name.replace('_', '-')}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        where = origin.get(name, f"--{name.replace('_', '-')}")
        given = f" (got {values[name]!r})" if name in values else ""
        raise InputError(f"{where}: {first['msg']}{given}") from error


def _read_table(file: Path, command: str) -> dict[str, Any]:
    """The table of a command in the settings file; empty without one."""
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    for name, value in content.items():
        if name not in COMMANDS:
            what = f"table [{name}]" if isinstance(value, dict) else f"setting {name!r} outside the tables"
            raise InputError(f"{file}: no command reads the {what}; {choices(name, COMMANDS)}")
    table = content.get(command, {})
    if not isinstance(table, dict):
        raise InputError(f"{file}: [{command}] must be a table")
    return {name.replace("-", "_"): value for name, value in table.items()}
