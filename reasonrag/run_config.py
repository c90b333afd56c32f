"""config.json of a run or an evaluation: what decided its answers, and what a changed configuration is.

Decides which keys other stages read, and that others are kept as written. Knows values, not what they mean.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, Field, PrivateAttr, model_serializer, model_validator
from pydantic import ModelWrapValidatorHandler as Handler

from preference.export.private_files import INDENTED, write_file
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, JOURNAL, ROLLOUTS, read_record
from reasonrag.ranks import RANKS
from reasonrag.settings import OWN_EFFORT, EffortName, Settings
from reasonrag.web.client import http_address, shown_url

CUT = "messages from "
"""Begins what is refused by an endpoint that cuts prompts: the bytes follow."""


class _Kept(BaseModel, frozen=True):
    """A part of the file: the fields are the keys that other stages read; all keys are written as they were given."""

    _given: dict[str, Any] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, given: Any, read: Handler[Self]) -> Self:
        kept = read(given)
        kept._given = given
        return kept

    @model_serializer
    def _as_given(self) -> dict[str, Any]:
        return self._given


class RecordedModel(_Kept):
    name: str


class RecordedRecipe(_Kept):
    name: str = ""
    outcome: str = "f1"
    judge_sees_gold: bool | None = None
    """None for imported trees, which had no judge."""
    unreadable_replies: str = Field(default="wrong", alias="unreadable")
    forced_answers: str = "counted"
    repairs_count: bool = False
    support: Literal["strings", "judge"] = "strings"
    reward: str = ""


class DecidesAnswers(_Kept):
    """What `config_hash` covers."""

    imported: str = ""
    """The pipeline that trees were imported from; empty for our own."""
    dataset: str = ""
    questions_sha256: str = ""
    sample: dict[str, Any] | None = None
    """Seed of the draw; None: the questions are the first of the split."""
    model: str = ""
    value_model: RecordedModel | None = None
    reader: RecordedModel | None = None
    critic: str = ""
    sampling: dict[str, Any] = {}
    retriever: str | None = None
    """None for an evaluation whose method does not search."""
    prompts: str = ""
    """Their hash."""
    top_k: int | None = None
    max_passage_chars: int | None = None
    """None: passages were shown whole."""
    passage_order: str | None = None
    """None: best first."""
    style: str | None = None
    """Of answers; None: short."""
    agent: str | None = None
    """None: the one that ReasonRAG defines."""
    max_steps: int | None = None
    steps_by_hops: bool = False
    """Whether questions whose hops are known have other steps."""
    outcome_rule: int | None = None
    """Version of the rule of `evident_f1`; None of other outcomes."""
    recipe: RecordedRecipe = RecordedRecipe()
    baseline_prompts: Any = None
    """Hash of the prompts of an evaluation's method, if that is not the agent."""

    @property
    def reasoning_effort(self) -> EffortName:
        """Setting that makes this sampling."""
        return self.sampling.get("reasoning_effort") or OWN_EFFORT

    @property
    def student(self) -> str | None:
        """The model that continued steps, if it was not the teacher."""
        return self.value_model.name if self.value_model else None


class Operational(_Kept):
    """Settings that may change between sessions of a run."""

    settings: dict[str, Any] = {}
    """Resolved settings; empty for imported trees, which have none."""
    questions: str | None = None
    """The question file."""
    hub_revision: str | None = None
    corpus: str | None = None
    base_url: list[str] = []
    refused_parameters: dict[str, list[str]] = {}
    """Request parameters that an endpoint refused in some session, by name of the model: its answers came without."""


class RunConfig(_Kept):
    """Content of config.json; `model_dump()` is all of it, in the order of the file."""

    config_hash: str = ""
    decides_answers: DecidesAnswers
    operational: Operational | None = None
    """None in a published run, which records no paths."""

    @classmethod
    def of(cls, decides_answers: dict[str, Any], operational: dict[str, Any]) -> RunConfig:
        """The configuration of what is made now, with its hash and versions."""
        decided = {"config_hash": config_hash(decides_answers), "decides_answers": decides_answers}
        return cls.model_validate(decided | {"operational": operational, "versions": versions()})

    def with_refusals(self, refused: dict[str, list[str]]) -> RunConfig:
        """The configuration that records these refused parameters, beside those that it has. The lengths from which
        these models cut prompts are replaced."""
        known = self.operational.refused_parameters if self.operational else {}
        for name in known.keys() & refused.keys():
            known = known | {name: [each for each in known[name] if not each.startswith(CUT)]}
        every = {name: lessons for name, lessons in refused_by_any([known, refused]).items() if lessons}
        given = self.model_dump()
        return self.model_validate(given | {"operational": given["operational"] | {"refused_parameters": every}})

    def to_bytes(self) -> bytes:
        return orjson.dumps(self.model_dump(), option=INDENTED)

    def changed_to(self, other: RunConfig, **usual: str) -> list[str]:
        """`key was x, is y` for everything that decides answers and differs. usual: values that a file leaves out."""
        return changed_keys(*(usual | each.decides_answers.model_dump() for each in (self, other)))


def has_answers(directory: Path) -> bool:
    """Whether a run holds any paid answer, or a line of a question."""
    paths = (directory / JOURNAL, directory / ROLLOUTS)
    return any(path.exists() and path.stat().st_size > 0 for path in paths)


def recorded_effort(folder: Path) -> EffortName | None:
    """The --reasoning-effort of the run in a folder, or of another rank of its run; None if none has begun."""
    others = sorted(folder.parent.glob("*")) if folder.parent.name == RANKS else []
    configs = filter(None, (find_config(each / CONFIG) for each in (folder, *others) if has_answers(each)))
    return next((each.decides_answers.reasoning_effort for each in configs), None)


def keep_config(directory: Path, config: RunConfig, *, flag: str = "--run") -> None:
    """Write config.json. Where something was made under the one that is there, that decides answers alike. flag: names
    the folder in messages.

    Raises InputError naming every setting that does not; and for a config.json of others, a model's for instance.
    """
    path, held = directory / CONFIG, has_answers(directory)
    earlier = read_config(path) if held or path.exists() else None
    changed = earlier.changed_to(config, agent="reasonrag") if earlier else []
    agents = [each for each in changed if each.startswith("agent ")]
    if held and earlier and agents and not any(each.startswith("method ") for each in changed):
        named = earlier.decides_answers.agent or "reasonrag"
        raise InputError(
            f"{directory} holds a run of another agent: {agents[0]}. Choose another {flag}, or give --agent {named}"
        )
    if held and changed:
        prompts = any(each.startswith("prompts ") for each in changed)
        raise InputError(
            f"{directory} holds a run with another configuration; its trees and answers cannot be used for this one. "
            f"Changed: {'; '.join(changed)}. Choose another {flag}, or the settings in {path}"
            f"{'. As to prompts, give the folder they are in by --prompts' if prompts else ''}"
        )
    if held and earlier and earlier.operational and earlier.operational.refused_parameters:
        config = config.with_refusals(earlier.operational.refused_parameters)
    write_file(path, config.to_bytes())


@contextmanager
def another_run_named(directory: Path) -> Iterator[None]:
    """Have an InputError of the block that proposes another model propose another run, too, where this one has answers:
    those of its model. directory: of the run, or of one of its ranks."""
    try:
        yield
    except InputError as error:
        if error.instead and "--run" not in error.instead and has_answers(directory):
            run = directory.parent.parent if directory.parent.name == RANKS else directory
            error.instead["--run"] = f"{run}-{'-'.join(error.instead.values()).replace('/', '-')}"
        raise


def refused_by_any(sessions: Sequence[dict[str, list[str]]]) -> dict[str, list[str]]:
    """What endpoints refused in several sessions or ranks, together."""
    names = sorted({name for each in sessions for name in each})
    return {name: sorted({said for each in sessions for said in each.get(name, [])}) for name in names}


def note_refusals(directory: Path, refused: dict[str, list[str]]) -> dict[str, list[str]]:
    """Record in config.json which parameters endpoints refused in this session; returns those of all sessions."""
    config = read_config(directory / CONFIG)
    noted = config.with_refusals(refused) if refused else config
    if noted.operational != config.operational:
        write_file(directory / CONFIG, noted.to_bytes())
    return noted.operational.refused_parameters if noted.operational else {}


def changed_keys(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """`key was x, is y` for every key whose values differ, nested ones by their path (`recipe.search.siblings`)."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    return [
        f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and key != "extra_body":  # the user's own: null and {} in it are not nothing
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_config(path: Path) -> RunConfig:
    """The content of a config.json. Raises InputError if it is not one."""
    if found := read_record(path, RunConfig, "Choose another --run"):
        return found
    there = ROLLOUTS if (path.parent / ROLLOUTS).exists() else JOURNAL
    raise InputError(f"{path.parent} has {there} but no {CONFIG}, so how it was made is unknown. Choose another --run")


def find_config(path: Path) -> RunConfig | None:
    """The content of a config.json; None if it is missing or unreadable, as for rollouts without their run."""
    try:
        return read_record(path, RunConfig, "")
    except InputError:
        return None


def config_hash(decides_answers: dict[str, Any]) -> str:
    """Hash of everything that decides answers, in 16 hexadecimal digits."""
    canonical = orjson.dumps(decides_answers, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:16]


def versions() -> dict[str, str]:
    packages = ("reasonrag", "openai", "bm25s", "pydantic", "genai-prices")
    return {"python": platform.python_version()} | installed_versions(packages)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those of these packages that are here."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Settings as a file may hold them: addresses without users, passwords and queries."""

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(each) for each in value]
        return shown_url(value) if isinstance(value, str) and http_address(value) else value

    names = [name for name in type(settings).model_fields if name.endswith("base_url")]
    found = {name: shown(value) for name, value in settings.model_dump(mode="json").items()}
    return found | {name: shown_urls(getattr(settings, name)) for name in names}


def shown_urls(addresses: Sequence[str]) -> list[str]:
    return [shown_url(each) for each in addresses if each]
