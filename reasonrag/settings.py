"""Settings of the commands: what their fields are made of, and where values come from.

Flags > environment (REASONRAG_<NAME>) > `reasonrag.toml` (a table per command) > defaults. A room's `settings.py` holds
its fields: name, type, range, default, help text and panel of a flag stand there and nowhere else. Knows no flag's
syntax: `reasonrag.options` makes flags of fields.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import orjson
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from reasonrag.errors import InputError, choices
from reasonrag.files import read_small_text
from reasonrag.redaction import excerpt, keep_secret, keys_in, secrets, texts_in

arguments: ContextVar[list[str] | None] = ContextVar("arguments", default=None)
"""Of the running command line, without the program's name; None in a call from Python."""
_flags_decide: ContextVar[bool] = ContextVar("_flags_decide", default=False)
ENV_PREFIX = "REASONRAG_"
SETTINGS_FILE = "reasonrag.toml"
MOST_CHARACTERS, MOST_IN_A_LINE = 1 << 16, 2000
"""Of a settings file; a key is on one line. Time and memory of tomllib grow with the square of a dotted key: 5.2 GB for
one of 60,000 characters."""
_SHOWN = 500
"""Characters of a value in a message about it."""
COMMANDS = tuple(
    "generate pairs warm-up import audit review publish calibrate tune corpus corpus-questions index serve train "
    "train-critic train-policy rounds evaluate-critic evaluate compare ask doctor show view".split()
)
"""Commands with a table in the settings file."""
Record = TypeVar("Record", bound="Settings")


class Settings(BaseModel, frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False):
    def part(self, record: type[Record]) -> Record:
        """A record that these settings are made of, with the values of its fields here."""
        values = {name: getattr(self, name) for name in record.model_fields}
        return cast("Record", record.model_construct(self.model_fields_set & values.keys(), **values))


class Panel(StrEnum):
    """Groups of flags in the help of a command, in the order in which they are shown."""

    TRIALS = "Trials"
    DATA = "Questions and corpus"
    RETRIEVAL = "Retrieval"
    ENCODER = "Encoder"
    MODEL = "Model and prompts"
    CONSISTENCY = "Consistency with training"
    JUDGE = "Answer judge"
    CRITIC = "Critic"
    STATISTICS = "Statistics"
    SEARCH = "Tree search"
    ORIGIN = "Origin of the data"
    OUTPUT = "Output"
    PAIRING = "Pair selection"
    DECONTAMINATION = "Decontamination"
    LABELS = "Labels"
    TRAINING = "Training"
    CHECKS = "Checks"
    HARDWARE = "Planned hardware"
    MACHINES = "Machines and launch"
    EXECUTION = "Execution"
    BUDGET = "Budget and prices"


COMMON = "common"
"""Marks a flag that `--help` shows; `--help-all` shows all. Of a setting: `setting(.., common=True)`."""


def setting(
    description: str,
    panel: Panel | None = None,
    *,
    default: object = None,
    common: bool = False,
    **rules: Any,
) -> Any:
    """A field of settings. description: the help of its flag. panel: where the help shows it, if its type does not say.
    common: shown by `--help`, not only by `--help-all`. rules: ranges and the like, as `pydantic.Field` takes them."""
    field = Field(default, description=description, **rules)
    field.metadata += [panel] * bool(panel) + [COMMON] * common  # as in `Annotated[.., Panel.OUTPUT, COMMON]`
    return field


@dataclass(frozen=True)
class Shape:
    """What a setting takes. kind: the type of a value; words: its choices, if no others are possible. several: whether
    it is a list of such values. marks: what else its annotation says."""

    kind: Any
    words: tuple[str, ...] = ()
    several: bool = False
    optional: bool = False
    marks: tuple[object, ...] = ()


def shape_of(annotation: Any) -> Shape:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = shape_of(parts[0])
        return replace(inner, marks=(*inner.marks, *parts[1:]))
    if origin in (Union, UnionType):
        [of_value] = (each for each in parts if each is not NoneType)
        return replace(shape_of(of_value), optional=NoneType in parts)
    if origin is list:
        return replace(shape_of(parts[0]), several=True)
    return Shape(str, words=parts) if origin is Literal else Shape(origin or annotation)


@dataclass(frozen=True)
class Opposite:
    """Overrides the negative flag of a boolean (`--no-NAME`); None: there is no negative flag."""

    flag: str | None


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def flags_of(name: str, field: FieldInfo | None) -> list[str]:
    """The flag of a setting and, if it is a boolean one that has it, the negative flag."""
    own = (each.flag for each in (field.metadata if field else ()) if isinstance(each, Opposite))
    return [flag_of(name), *filter(None, [next(own, flag_of(f"no_{name}"))])]


def flags_given(settings: BaseModel, *, without: Collection[str] = ()) -> list[str]:
    """The words of a command line that gives these settings, where they are no defaults, but for those `without`."""
    words = list[str]()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name in without or value == field.get_default() or value is None:
            continue
        if isinstance(value, bool):
            words.append(flag_of(name) if value else flag_of(f"no_{name}"))
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [flag_of(name), orjson.dumps(each).decode() if isinstance(each, dict) else str(each)]
    return words


def _listed(separator: str | None) -> Callable[[object], object]:
    """A list of what is one or none in Python, a text in the environment. separator: in the text; None: white space."""

    def listed(value: object) -> object:
        if value is None or isinstance(value, Path):
            return [] if value is None else [value]
        return value.split(separator) if isinstance(value, str) else value

    return listed


one_or_several, list_of_places = _listed(None), _listed(os.pathsep)
"""Names or addresses; and paths, separated as in PATH."""


def path_as_text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def names_of_settings(value: object) -> object:
    """Names spelled like flags or like settings, separated in the environment by white space."""
    names = one_or_several(value)
    if isinstance(names, list | tuple):
        return [each.replace("-", "_") if isinstance(each, str) else each for each in names]
    return names


def changes_as_words(value: object) -> object:
    """`KEY=VALUE` words of a mapping, which may be nested: `{"search": {"siblings": 4}}` is `search.siblings=4`."""
    if not isinstance(value, Mapping):
        return one_or_several(value)
    words: list[str] = []
    for key, each in value.items():
        if isinstance(each, Mapping):
            words += [f"{key}.{word}" for word in changes_as_words(each)]  # type: ignore[attr-defined]
        else:
            words.append(f"{key}={each if isinstance(each, str) else orjson.dumps(each).decode()}")
    return words


_OUR_FIELDS = frozenset(
    "model messages temperature top_p max_tokens max_completion_tokens stop seed n stream".split()  # of every request
)
HOLDS_A_KEY = (
    "this contains what looks like a key, but settings are written to files; put keys into environment variables, "
    "such as OPENAI_API_KEY"
)


def fields_of_a_body(value: object) -> object:
    """A JSON object, or its text, that adds fields to a request's body; None if it adds none. Its keys in order, as the
    same fields make the same request."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"this is not JSON ({error}); quote it for the shell, as '{EXTRA_BODY}'") from None
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"this is not a JSON object; write one, as '{EXTRA_BODY}'")  # noqa: TRY004 - read by pydantic
    for name in sorted(_OUR_FIELDS & value.keys()):
        raise ValueError(f"{name!r} is a field that reasonrag sets itself; leave it out")
    if keys_in("\n".join(texts_in(value)), secrets()):
        raise ValueError(HOLDS_A_KEY)
    try:
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)) or None
    except TypeError as error:  # nested too deep; or of a TOML file or Python, what JSON does not hold
        raise ValueError(f"this cannot be sent as JSON ({error})") from None


SEVERAL = BeforeValidator(one_or_several)
EXTRA_BODY = '{"reasoning_effort": "low"}'
"""An example."""
ExtraBody: TypeAlias = Annotated[dict[str, Any] | None, BeforeValidator(fields_of_a_body)]
EffortName: TypeAlias = Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"]
OWN_EFFORT: EffortName = "default"
"""The model's own: nothing is sent."""
Effort: TypeAlias = Annotated[
    EffortName | None,
    Field(
        description="How much the model reasons before it answers, billed as completion tokens: none, minimal, low, "
        "medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where the trial "
        "request shows that the model reasons and takes that]"
    ),
]
FROM_PATH = BeforeValidator(path_as_text)
PlaceOrName: TypeAlias = Annotated[str, FROM_PATH]
"""A folder here, or something that is none: a model's name, the URL of a server."""
PlacesOrNames: TypeAlias = Annotated[list[PlaceOrName], SEVERAL]
Words: TypeAlias = Annotated[list[str], SEVERAL]
CHANGES = BeforeValidator(changes_as_words)
Changes: TypeAlias = Annotated[list[str], CHANGES]
Places: TypeAlias = Annotated[list[Path], BeforeValidator(list_of_places)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Limit: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
"""An upper limit that fits into JSON files; 0: none."""
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]

# Fields of every command that asks a model, and may spend money on it.
Concurrency: TypeAlias = Annotated[int, Panel.EXECUTION, Field(ge=1, description="HTTP requests in flight")]
MaxCost: TypeAlias = Annotated[float | None, Panel.BUDGET, Field(ge=0)]
MaxCalls: TypeAlias = Annotated[int | None, Panel.BUDGET, Field(ge=0)]
Yes: TypeAlias = Annotated[
    bool,
    Opposite(None),
    Panel.BUDGET,
    Field(description="Without --max-cost: start without asking or warning about the cost"),
]

# Fields of every command whose work can be spread over machines.
On: TypeAlias = Annotated[
    Literal["here", "ray"],
    Panel.MACHINES,
    Field(
        description="Where the work is done: here, in this process, or ray, by workers on a Ray cluster, which is "
        "the one that RAY_ADDRESS names, else one that is started on this machine; needs the ray extra"
    ),
]


GUARDS = frozenset({"allow", "allow_critic", "allow_eval", "replace", "yes"})
"""What sets a guard aside is said anew each time: a settings file would switch the guard off for good."""
AnySettings = TypeVar("AnySettings", bound=Settings)


@contextmanager
def flags_decide() -> Iterator[None]:
    """In its block settings come from flags alone: a command calls others, whose tables and variables are not meant."""
    before = _flags_decide.set(True)
    try:
        yield
    finally:
        _flags_decide.reset(before)


def resolve(model: type[AnySettings], command: str, flags: Mapping[str, Any]) -> AnySettings:
    """Settings from flags that are not None, then environment, then file, then defaults.

    Raises InputError naming the setting, where its value came from and what is wrong with it.
    """
    fields = model.model_fields
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}

    def take(name: str, value: Any, where: str) -> None:
        if name not in fields:
            raise InputError(f"{where}: {command} has no setting {name!r}; {choices(name, fields)}")
        values[name], origin[name] = value, where
        if name.endswith(("base_url", "retriever", "critic", "against")):
            for each in texts_in(one_or_several(value)):
                keep_secret(each)
        elif keys_in("\n".join(texts_in(value)), secrets()):
            raise InputError(f"{where}: {HOLDS_A_KEY}")

    file, alone = Path(SETTINGS_FILE), _flags_decide.get()
    for name, value in ({} if alone else _read_table(file, command)).items():
        if name in GUARDS & fields.keys() and value:
            raise InputError(
                f"{file}, [{command}] {name}: this guards every run, so a settings file cannot switch it off; leave it "
                f"out, and give {flag_of(name)} to the command that is meant"
            )
        take(name, value, f"{file}, [{command}]{f' {name}' if name in fields else ''}")
    for name in fields:
        variable = ENV_PREFIX + name.upper()
        if not alone and (given := os.environ.get(variable)):
            take(name, given, variable)
    for name, value in flags.items():
        if value is not None and value != []:  # a flag that may be repeated, and was not given
            take(name, value, flag_of(name) if name in fields else name)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        where = origin.get(name, flag_of(name))
        if first["type"] == "missing":
            raise InputError(f"{where} is required: {fields[name].description}") from error
        wrong = first["input"] if len(first["loc"]) > 1 else values.get(name)  # one of several
        got = f" (got {shown_value(wrong)})" if name in values else ""
        raise InputError(f"{where}: {plain_message(first['msg'])}{got}") from error


_PLAIN = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
    "Input should be": "must be",
}
"""What pydantic says, as people say it."""


def plain_message(message: str) -> str:
    for said, plain in _PLAIN.items():
        message = message.replace(said, plain)
    return message


def shown_value(value: object) -> str:
    """A value in a message about it."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply; a number too long to be written
        return "a value that cannot be shown"
    return text if len(text) <= _SHOWN else f"{excerpt(text, _SHOWN)}.."


def _read_table(file: Path, command: str) -> dict[str, Any]:
    """The table of a command in the settings file; empty without one."""
    try:
        text = read_small_text(file, MOST_CHARACTERS)
        for number, line in enumerate(text.splitlines(), start=1):
            if len(line) > MOST_IN_A_LINE:
                raise InputError(f"{file}, line {number}: more than {MOST_IN_A_LINE:,} characters; write several lines")
        content = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except RecursionError as error:
        raise InputError(f"cannot read {file}: it is nested too deeply") from error
    except (OSError, ValueError) as error:  # ValueError: a number of 5,000 digits
        raise InputError(f"cannot read {file}: {error}") from error
    for name, value in content.items():
        if name not in COMMANDS:
            what = f"table [{name}]" if isinstance(value, dict) else f"setting {name!r} outside the tables"
            raise InputError(f"{file}: no command reads the {what}; {choices(name, COMMANDS)}")
    table = content.get(command, {})
    if not isinstance(table, dict):
        raise InputError(f"{file}: [{command}] must be a table")
    return {name.replace("-", "_"): value for name, value in table.items()}
