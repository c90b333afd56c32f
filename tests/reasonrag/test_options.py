"""Flags made of settings: which flag a field gives, what it takes, and what its help says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from reasonrag.options import HelpOfCommand, Json, options, this_command
from reasonrag.settings import COMMON, Opposite, Panel, Places, Settings, Words, setting
from reasonrag.settings import arguments as arguments_of_this
from tests.reasonrag.test_cli import COMMANDS


class Sample(Settings):
    out_dir: Annotated[Path, Panel.OUTPUT, COMMON] = Field(description="Where to write")
    top_k: Annotated[int, Panel.RETRIEVAL] = Field(default=3, ge=1, description="Passages per search")
    share: float | None = Field(default=None, description="A share [default: the recipe's]")
    kind: Literal["flat", "hnsw"] | None = Field(default=None, description="flat or hnsw")
    format: list[Literal["sft", "kto"]] = Field(default=[], description="A format; repeatable")
    names: Words = Field(default=[], description="A name; repeatable")
    places: Places = Field(default=[], description="A place; repeatable")
    gpu: bool = Field(default=True, description="Use GPUs")
    same_type: Annotated[bool, Opposite("--any-type")] = Field(default=True, description="One type, or any")
    allow: Annotated[bool, Opposite(None)] = Field(default=False, description="Allow it")


class Other(Settings):
    top_k: int = Field(default=9, description="The other's")
    only_here: str | None = setting("Only in the other", common=True)


def sample_app(given: dict[str, Any]) -> typer.Typer:
    """A command of both models that records what it is called with."""
    made = typer.Typer(rich_markup_mode=None)

    @made.command(cls=HelpOfCommand)
    @options(Sample, Other, without=("share",), example="sample --top-k 3")
    def sample(
        word: Annotated[str, typer.Argument(metavar="WORD", help="A word")] = "none",
        *,
        loud: Annotated[bool, typer.Option("--loud", help="Say it aloud"), COMMON] = False,
        as_json: Json = False,
        **flags: Any,
    ) -> None:
        given.update(flags, word=word, as_json=as_json, loud=loud)

    return made


def given_with(*arguments: str) -> dict[str, Any]:
    """What the command got that is not None."""
    given: dict[str, Any] = {}
    done = CliRunner().invoke(sample_app(given), list(arguments))
    assert done.exit_code == 0, done.output
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], {}),
        (["--out-dir", "a/b"], {"out_dir": Path("a/b")}),
        (["--top-k", "0"], {"top_k": 0}),  # a wrong value is for `resolve` to name
        (["--kind", "round"], {"kind": "round"}),
        (["--format", "sft", "--format", "kto"], {"format": ["sft", "kto"]}),
        (["--names", "a b", "--names", "c"], {"names": ["a b", "c"]}),
        (["--places", "a:b"], {"places": [Path("a:b")]}),
        (["--no-gpu"], {"gpu": False}),
        (["--any-type"], {"same_type": False}),
        (["--allow"], {"allow": True}),
        (["--only-here", "x"], {"only_here": "x"}),
        (["w", "--json"], {"word": "w", "as_json": True}),
    ],
)
def test_a_field_gives_the_flag_of_its_type(arguments: list[str], given: dict[str, Any]) -> None:
    """A flag that is not given is None: environment, file and default are asked for it."""
    assert given_with(*arguments) == {"word": "none", "as_json": False, "loud": False} | given


@pytest.mark.parametrize("flag", ["--no-same-type", "--no-allow", "--share", "--top_k", "--no-json"])
def test_no_other_flag_is_made(flag: str) -> None:
    """An opposite replaces --no-NAME, or takes it away; a field that is left out has no flag."""
    assert CliRunner().invoke(sample_app({}), [flag]).exit_code == 2


def help_of(*arguments: str) -> str:
    return CliRunner().invoke(sample_app({}), list(arguments)).output


def test_the_help_has_descriptions_defaults_and_panels_in_their_order() -> None:
    """A default is shown where the field has one that is no truth value; of two models the first one's field counts."""
    shown = help_of("--help-all")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "--top-k N Passages per search [default: 3]" in lines
    assert "--out-dir PATH Where to write [required]" in lines
    assert "--kind flat|hnsw flat or hnsw" in lines
    assert "The other's" not in shown
    panels = [line[:-1] for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert panels == ["Arguments", Panel.RETRIEVAL, Panel.OUTPUT, "Options", "Example"]
    assert shown.endswith("\nExample:\n  sample --top-k 3\n")


def test_help_shows_the_common_flags_and_help_all_every_one() -> None:
    """Arguments are always shown."""
    shown = set(re.findall(r"^  (--[a-z-]+|WORD)", help_of("--help"), re.M))
    assert shown == {"WORD", "--out-dir", "--only-here", "--loud", "--help", "--help-all"}
    assert shown < set(re.findall(r"^  (--[a-z-]+|WORD)", help_of("--help-all"), re.M))


def test_every_flag_of_every_command_has_a_help_text() -> None:
    """A setting without a description would be a flag that says nothing."""
    silent = [(words, flag.name) for words, each in COMMANDS.items() for flag in each.params if not flag.help]
    assert not silent
    assert len(COMMANDS) == 29


OF_EACH_COMMAND = set(
    "--agent --allow --allow-critic --allow-eval --backend --base-model --base-url --concurrency --corpus --critic "
    "--data --dataset --dry-run --encoder --gpu --group --index --index-home --judge --limit --max-calls --max-cost "
    "--max-mb --max-reply-tokens --max-steps --min-confidence --model --out --port --price --prompts --questions "
    "--recipe --replace --rubric --run --sample --seed --set --split --temperature --top-k --validation "
    "--workers".split()
)
"""Flags whose help says more of each command than what they mean in all of them."""


def test_one_flag_name_has_one_meaning() -> None:
    """Its help text is the same in all commands, or it stands above; and what follows it is a number in all of them, or
    in none: but `--group`, which is a number of attempts to `rounds` and evaluations to `compare`."""
    texts: dict[str, set[str]] = {}
    numbers: dict[str, set[bool]] = {}
    for command in COMMANDS.values():
        for flag in (each for each in command.params if each.param_type_name == "option"):
            for name in flag.opts:
                texts.setdefault(name, set()).add(flag.help)
                numbers.setdefault(name, set()).add(flag.type_descriptor.annotation in (int, float))
    assert {name for name, found in texts.items() if len(found) > 1} == OF_EACH_COMMAND
    assert [name for name, found in numbers.items() if len(found) > 1] == ["--group"]


@pytest.mark.parametrize(
    ("given", "changed", "command"),
    [
        (["generate", "--run", "a b"], {}, "reasonrag generate --run 'a b'"),
        (["generate", "--max-cost", "1", "--run", "r"], {"--max-cost": "2"}, "reasonrag generate --run r --max-cost 2"),
        (["generate", "--max-cost=1"], {"--max-cost": "2"}, "reasonrag generate --max-cost 2"),
        (["generate"], {"--max-calls": "9"}, "reasonrag generate --max-calls 9"),
    ],
)
def test_the_command_that_continues_can_be_pasted(given: list[str], changed: dict[str, str], command: str) -> None:
    """Quoted for a shell; a flag with a new value stands once."""
    before = arguments_of_this.set(given)
    assert this_command(changed) == command
    arguments_of_this.reset(before)
