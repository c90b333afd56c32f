"""The README is the contract: its commands are run, its Python is run, and what it shows is what comes out."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer

import reasonrag
from reasonrag.agent.prompting import load_prompts, renderer_hash
from reasonrag.cli import app
from reasonrag.data.datasets import REPOSITORY
from reasonrag.llm.scripted_model import ScriptedModel
from tests.helpers.collection import jsonl, rows_of
from tests.helpers.hub_server import environment_for, running_hub
from tests.helpers.processes import Command, finished
from tests.helpers.published_rows import BEGIN, published_rows
from tests.helpers.shared import Shared
from tests.helpers.training_world import SMALL, make_tiny_qwen2

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SESSION_ROW = re.compile(r"│ this session.*\n")
"""The only row of the summary that tells how fast the machine was; it may also make the table wider."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


def commands(language: str = "sh") -> list[str]:
    """The reasonrag commands in order, comments cut off. Those of language `bash` need a GPU."""
    lines = (line.partition("#")[0].strip() for block in blocks(language) for line in block.splitlines())
    return [line for line in lines if line.startswith("reasonrag ")]


def demo_commands() -> list[str]:
    """What `make demo` runs."""
    return [each for each in commands() if re.match(r"reasonrag (generate|pairs) .*demo", each)]


def comparable(shown: str) -> str:
    """What a summary says, apart from the time it took and the widths of columns."""
    return re.sub(r"[ ─]+", " ", SESSION_ROW.sub("", shown))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run(command: list[str], **environment: str) -> str:
    """Stdout of a command in a fresh process; its stderr is shown where it fails."""
    variables = os.environ | {"COLUMNS": "80"} | environment
    return output(subprocess.run(command, check=False, capture_output=True, text=True, env=variables))


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{shlex.join(done.args)}\n{done.stderr}"
    return done.stdout


def words_of(line: str) -> list[str]:
    """What stands behind `reasonrag`."""
    return shlex.split(line)[1:]


@pytest.fixture
def rehearsal() -> Iterator[str]:
    """The README's own simulated endpoint, on a port that is free here."""
    [line] = [each.removesuffix("&") for each in commands() if "simulate-endpoint" in each]
    port = str(free_port())
    with Command(*words_of(line.replace("8765", port))) as server:
        assert f"serving at http://127.0.0.1:{port}/v1" in server.first_line()
        yield port


@pytest.fixture
def retrieval_server() -> Iterator[str]:
    """The README's own retrieval server, on a port that is free here, with an encoder that is quick."""
    [line] = [each.removesuffix("&") for each in commands() if "index serve" in each]
    port = str(free_port())
    with Command(*words_of(quick(line).replace("8977", port))) as server:
        assert f"serving at http://127.0.0.1:{port}" in server.first_line()
        yield port


QUICK = {
    "--encoder minilm": "--encoder hashing",
    "--limit 100": "--limit 30",
    "--revalue 40 --k 16": "--revalue 10 --k 8",
    "--pilot 30": "--pilot 6",
}
"""The same with less to encode and to explore."""


def quick(line: str) -> str:
    for written, less in QUICK.items():
        line = line.replace(written, less)
    return line


@pytest.mark.usefixtures("golden")
def test_the_demo_prints_what_the_readme_shows(request: pytest.FixtureRequest) -> None:
    """Table by table, apart from the time it took; `make golden` writes the block anew."""
    demo = demo_commands()
    printed = "".join(run([sys.executable, "-m", "reasonrag", *words_of(each)]) for each in demo)
    printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    [shown] = blocks("text")
    if request.config.getoption("--refresh-golden"):
        README.write_text(README.read_text("utf-8").replace(shown, printed), "utf-8")
        [shown] = blocks("text")
    assert comparable(printed) == comparable(shown)


def test_make_demo_runs_the_commands_that_the_readme_says() -> None:
    """One contract, written down in two places."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    demo = demo_commands()
    assert len(demo) == 2
    for command in demo:
        assert f"$(BIN)/{command}\n" in makefile


def test_a_newcomer_has_the_command_before_it_is_first_used() -> None:
    """`make demo` installs it into an environment; the README says how to enter it before any command of its own."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    ours = [place for place, line in enumerate(lines) if line.startswith("reasonrag ")]
    place = (ROOT / "Makefile").read_text("utf-8").partition("BIN := ")[2].splitlines()[0]
    assert lines.index(f"source {place}/activate") < ours[0]
    assert any(line.startswith("make demo") for line in lines[: lines.index(f"source {place}/activate")])


@pytest.fixture
def qa(shared_data: Path) -> None:
    """The real questions, a page and a question of one's own, and real published pairs, where the README has them."""
    Path("qa").symlink_to(shared_data)
    Path("handbook").mkdir()
    Path("handbook/leave.md").write_text("# Leave\n\nEveryone has 28 days.\n\n## Parents\n\nUp to 14 months together.")
    Path("questions.jsonl").write_text('{"id": "q1", "question": "How long may parents be on leave?"}\n')
    Path("RAG_ProGuide.json").symlink_to(shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json")


TRAINS = re.compile(r"reasonrag (train|doctor|evaluate|compare) ")
"""The commands that need LLaMA-Factory, or what it made."""


def test_what_the_readme_trains_is_trained_and_measured(train_python: Path, shared: Shared) -> None:
    """From the demo's pairs to a comparison, by the commands as written, with a tiny model."""
    shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    variables = {"REASONRAG_TRAIN_PYTHON": str(train_python), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    for line in commands():
        if line in demo_commands() or TRAINS.match(line):
            output(finished(*words_of(line), environment=os.environ | variables))
    assert Path("saves/demo/model.safetensors").is_file()
    assert Path("evals/demo/report.md").is_file()


@pytest.fixture
def collection(shared_data: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a process that finds HotpotQA on a Hub of our own."""
    hotpotqa = shared_data / "hotpotqa"
    with running_hub() as hub:
        rows = rows_of(hotpotqa / "train.jsonl", hotpotqa / "corpus.jsonl")
        hub.put(REPOSITORY, {"hotpotqa/train.jsonl": jsonl(rows)})
        yield environment_for(hub.endpoint, tmp_path)


SMALLER = {
    "qwen2.5-7b-dpo-full": "smoke-cpu-dpo-full",
    "hotpotqa --data-dir qa": "atlas --limit 2 --max-reply-tokens 32",
    "--data data/released": " ".join(["--data data/released", *(f"--set {name}={SMALL[name]}" for name in SMALL)]),
}
"""A tiny model that takes a few steps, and fewer questions."""


@pytest.mark.usefixtures("qa")
def test_what_was_published_is_imported_trained_and_measured(
    train_python: Path, shared: Shared, rehearsal: str
) -> None:
    """By the commands as written, with a tiny model: it is asked in the words of the rows, as the published one is."""
    shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    Path("RAG_ProGuide.json").unlink()
    Path("RAG_ProGuide.json").write_bytes(orjson.dumps(published_rows()))
    variables = {"REASONRAG_TRAIN_PYTHON": str(train_python), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    [read] = [line for line in commands() if line.startswith("reasonrag import")]
    for line in (read, *(each for each in commands("bash") if "released" in each or "--preset" in each)):
        small = line
        for written, less in (SMALLER | {"8000": rehearsal}).items():
            small = small.replace(written, less)
        output(finished(*words_of(small), environment=os.environ | variables))
    theirs = renderer_hash(load_prompts(Path("reasonrag-published")))
    for name, steps, order in (("released", 7, None), ("reasonrag-7b", 9, "worst-first")):
        report = orjson.loads(Path("evals", name, "report.json").read_bytes())
        asked = report["asked"]
        assert (asked["renderer"], asked["max_steps"], asked.get("passage_order")) == (theirs, steps, order)
        assert report["answered"] == 2
    model = ScriptedModel(["<answer>x</answer>"])
    asked_once = {"dataset": "atlas", "limit": 1, "run": "evals/seen", "bootstrap": 1}
    reasonrag.evaluate(chat_model=model, trained_on="saves/released", **asked_once)
    assert model.requests[0].messages[0].content == BEGIN


@pytest.mark.usefixtures("qa")
def test_every_command_of_the_readme_runs(rehearsal: str, retrieval_server: str, collection: dict[str, str]) -> None:
    """As written, with the simulated endpoint in the place of OpenAI's, a small Hub in that of the real one, a quick
    encoder, and smaller numbers."""
    for line in commands():
        if "simulate-endpoint" not in line and "index serve" not in line and not TRAINS.match(line):
            variables = {"OPENAI_BASE_URL": f"http://127.0.0.1:{rehearsal}/v1", "OPENAI_API_KEY": "sk-test"}
            if "--dataset hotpotqa" in line and "--data-dir" not in line:
                variables |= collection
            there = quick(line).replace("8765", rehearsal).replace("8977", retrieval_server)
            output(finished(*words_of(there), environment=os.environ | variables))
    assert len(Path("runs/h/rollouts.jsonl").read_bytes().splitlines()) == 30
    assert {path.name for path in Path("runs/h").iterdir()} == {
        ".lock",
        *(Path(each).name for each in re.findall(r"^ {4}(runs/h/\S+)", README.read_text("utf-8"), re.MULTILINE)),
    }
    assert {path.name for path in Path("data/h").iterdir()} == {
        ".lock",
        *(Path(each).name for each in re.findall(r"^ {4}(data/h/\S+)", README.read_text("utf-8"), re.MULTILINE)),
    }


def test_the_python_of_the_readme_runs() -> None:
    """As it stands, in a fresh interpreter."""
    [code] = blocks("python")
    assert re.fullmatch(r"5 questions, \d+ pairs\n", run([sys.executable, "-c", code]))


def test_every_file_the_readme_names_exists() -> None:
    """No link leads nowhere."""
    named = re.findall(r"\]\(([^)#]+)\)", README.read_text("utf-8"))
    local = [each for each in named if not each.startswith("https://")]
    assert local
    for each in local:
        assert (ROOT / each).exists(), each
    for each in re.findall(r"^ {4}(\w+/|[\w/.]+\.md) ", README.read_text("utf-8"), re.MULTILINE):
        assert (ROOT / each).exists(), each


NAMED = re.compile(r"\b((?:reasonrag|preference|mcts)(?:\.[a-z_]+)+)(?![\w/])")
NO_MODULES = {"reasonrag.toml", "reasonrag.json"}


def test_every_test_that_the_promises_name_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "promises.md").read_text("utf-8"))
    assert len(named) > 50
    tests = {path: (ROOT / "tests" / path).read_text("utf-8") for path, _ in named}
    assert [each for each in named if f"def {each[1]}(" not in tests[each[0]]] == []


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_every_module_and_call_that_the_pages_name_exists(page: Path) -> None:
    """A module that moved has moved here too."""
    for name in set(NAMED.findall(page.read_text("utf-8"))) - NO_MODULES:
        parent, _, last = name.rpartition(".")
        assert hasattr(import_module(parent), last) or find_spec(name), name


def flags_of(command: Any) -> set[str]:
    """Of a command, and of those below it."""
    below = getattr(command, "commands", {}).values()
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*map(flags_of, below))


COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_the_readme_gives_a_command_exists(command: str) -> None:
    """A flag that was renamed is renamed in the README too."""
    known = flags_of(COMMANDS[command])
    every = commands() + commands("bash")
    given = {flag for line in every if line.split()[1] == command for flag in re.findall(r"--[a-z-]+", line)}
    assert given <= known


def test_every_flag_the_readme_speaks_of_exists() -> None:
    """Of whatever command."""
    known = set().union(*map(flags_of, COMMANDS.values()))
    assert set(re.findall(r"`(--[a-z-]+)", README.read_text("utf-8"))) <= known
