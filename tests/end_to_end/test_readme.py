"""The README and the pages of the site are the contract: their commands run, and what they show is what comes out."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer

import reasonrag
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.cli import app
from reasonrag.data.datasets import REPOSITORY
from tests.endpoints import __main__ as endpoints
from tests.helpers.collection import jsonl, rows_of
from tests.helpers.command_line import Reasonrag
from tests.helpers.hub_server import environment_for, running_hub
from tests.helpers.processes import Command, finished, free_port
from tests.helpers.published_rows import BEGIN, published_rows
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.shared import Shared
from tests.helpers.training_world import SMALL, make_tiny_qwen2

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FIRST = ROOT / "docs" / "tutorials" / "first-data-set.md"
"""It shows what the demo prints, and what lies on disk."""
ORDER = ("README.md", "tutorials", "how-to", "reference", "explanation", "troubleshooting")
"""A page may use the runs and data sets of pages before it."""


def place(page: Path) -> tuple[int, bool, str]:
    """Where a reader comes to a page: in ORDER, in the folder of tutorials the first one first."""
    return min(ORDER.index(part) for part in (*page.parts, ORDER[-1]) if part in ORDER), page != FIRST, str(page)


PAGES = [README, ROOT / "docs" / "index.md", *sorted((ROOT / "docs").glob("*/**/*.md"), key=place)]
CRITICS, ROUNDS = (ROOT / "docs" / "how-to" / f"{name}.md" for name in ("critics", "reinforcement"))
"""Its commands need TRL and each other; a test of their own runs them."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SESSION_ROW = re.compile(r"│ this session.*\n")
"""The only row of the summary that tells how fast the machine was; it may also make the table wider."""


def blocks(language: str, page: Path = README) -> list[str]:
    return [text for named, _, text in BLOCK.findall(page.read_text("utf-8")) if named == language]


ENDPOINTS = "python -m tests.endpoints"
"""A page starts it in a clone."""
LOOP = re.compile(r"^for (\w+) in (.+); do\n(.*?)^done$", re.DOTALL | re.MULTILINE)


def unrolled(loop: re.Match[str]) -> str:
    """What a shell loop of a page runs."""
    variable, values, body = loop.groups()
    return "".join(body.replace(f"${variable}", each) for each in values.split())


def commands(language: str = "sh", pages: Iterable[Path] = PAGES) -> list[str]:
    """The different commands of ours in order, those of loops for every value, comments cut off. Those of language
    `bash` need a GPU."""
    lines = (
        line.partition(" #")[0].strip()
        for page in pages
        for each in blocks(language, page)
        for line in LOOP.sub(unrolled, each).replace("\\\n", " ").splitlines()
    )
    return list(dict.fromkeys(line for line in lines if line.startswith(("reasonrag ", f"{ENDPOINTS} "))))


def demo_commands() -> list[str]:
    """What `make demo` runs."""
    return [each for each in commands() if re.match(r"reasonrag (generate|pairs) .*demo", each)]


def comparable(shown: str) -> str:
    """What a summary says, apart from the time it took and the widths of columns."""
    return re.sub(r"[ ─]+", " ", SESSION_ROW.sub("", shown))


def run(command: list[str], **environment: str) -> str:
    """Stdout of a command in a fresh process; its stderr is shown where it fails."""
    variables = os.environ | {"COLUMNS": "80"} | environment
    return output(subprocess.run(command, check=False, capture_output=True, text=True, env=variables))


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{shlex.join(done.args)}\n{done.stderr}"
    return done.stdout


def words_of(line: str) -> list[str]:
    """What stands behind the program."""
    return shlex.split(line.removeprefix(ENDPOINTS).removeprefix("reasonrag"))


def started(line: str, stack: ExitStack) -> tuple[str, str]:
    """A server that a page starts, on a port that is free here: the page's port and ours."""
    [written] = re.findall(r"--port (\d+)", line)
    port = str(free_port())
    words = words_of(quick(line).removesuffix("&").replace(written, port))
    module = "tests.endpoints" if line.startswith(ENDPOINTS) else "reasonrag"
    server = stack.enter_context(Command(*words, module=module))
    assert f"serving at http://127.0.0.1:{port}" in server.first_line()
    return written, port


@pytest.fixture
def rehearsal() -> Iterator[str]:
    """Port of a simulated endpoint, for every model that a page asks for."""
    with ExitStack() as stack:
        yield started(f"{ENDPOINTS} --port 8765 &", stack)[1]


QUICK = {
    "--encoder minilm": "--encoder hashing",
    "--limit 100": "--limit 15",
    "--split train --limit 20": "--split train --limit 3",
    "--split train --limit 5": "--split train --limit 2",
    "--revalue 40 --k 16": "--revalue 10 --k 8",
    "--pilot 30": "--pilot 6",
}
"""The same with less to encode and to explore."""


def quick(line: str) -> str:
    for written, less in QUICK.items():
        line = line.replace(written, less)
    return line


def make_demo() -> None:
    """Run and data set of `make demo`, which installs no extra for token lengths, and what its commands print."""
    command = [sys.executable, "-m", "reasonrag"]
    printed = [run([*command, *words_of(each)], REASONRAG_TOKENIZER="estimate") for each in demo_commands()]
    Path("printed.txt").write_text("".join(printed), "utf-8")


@pytest.mark.usefixtures("golden")
def test_the_demo_prints_what_the_tutorial_shows(request: pytest.FixtureRequest, shared: Shared) -> None:
    """Table by table, apart from the time it took; `make golden` writes the block anew."""
    printed = (shared.folder("demo", make_demo) / "printed.txt").read_text("utf-8")
    printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    [shown] = blocks("text", FIRST)
    if request.config.getoption("--refresh-golden"):
        FIRST.write_text(FIRST.read_text("utf-8").replace(shown, printed), "utf-8")
        [shown] = blocks("text", FIRST)
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
    lines = [line.partition(" #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    ours = [place for place, line in enumerate(lines) if line.startswith("reasonrag ")]
    place = (ROOT / "Makefile").read_text("utf-8").partition("BIN := ")[2].splitlines()[0]
    assert lines.index(f"source {place}/activate") < ours[0]
    assert any(line.startswith("make demo") for line in lines[: lines.index(f"source {place}/activate")])


def write_files_of(page: Path) -> None:
    """The files whose text a page shows under their names."""
    for _, name, text in BLOCK.findall(page.read_text("utf-8")):
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, "utf-8")


@pytest.fixture
def qa(shared_data: Path) -> None:
    """The real questions and real published pairs where the pages have them, and the files that the pages show."""
    Path("qa").symlink_to(shared_data)
    Path("RAG_ProGuide.json").symlink_to(shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json")
    for page in PAGES:
        write_files_of(page)


TRAINS = re.compile(
    r"^(?!.*(?:corpora/handbook|evals/(?:base|judged) ))"
    r".*(?:reasonrag (?:train|doctor|evaluate|compare) |saves/|evals/)"
)
"""The commands that need LLaMA-Factory, or what it made."""


def _others() -> list[Path]:
    return [each for each in PAGES if each not in (CRITICS, ROUNDS)]


def against(port: str) -> dict[str, str]:
    """Variables of a process for which the simulated endpoint stands in the place of OpenAI's."""
    return {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "sk-test"}


@pytest.mark.usefixtures("qa")
def test_what_the_pages_train_is_trained_and_measured(train_python: Path, shared: Shared, rehearsal: str) -> None:
    """From the demo's pairs to a comparison, by the commands as written, with a tiny model."""
    shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    shared.copy("demo", make_demo)
    variables = {"REASONRAG_TRAIN_PYTHON": str(train_python), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    variables |= against(rehearsal)
    for line in commands(pages=_others()):
        if TRAINS.search(line):
            output(finished(*words_of(line.replace("8765", rehearsal)), environment=os.environ | variables))
    assert Path("saves/demo/model.safetensors").is_file()
    assert Path("evals/demo/report.md").is_file()


@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: pip install 'reasonrag[rl]'")
def test_what_the_page_of_critics_trains_is_evaluated_and_used(train_python: Path, shared: Shared) -> None:
    """By the commands as written, with fewer questions: a critic that learned nothing is told from one that judges."""
    shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    for line in commands(pages=[CRITICS]):
        fewer = re.sub(r"--limit (\d+)", lambda found: f"--limit {min(16, int(found[1]) // 2)}", line)
        fewer = line if "runs/held-out" in line else fewer  # it takes 30 pairs to judge a critic
        done = finished(*words_of(fewer), environment=variables)
        if "evaluate-critic" in line:
            assert done.returncode == 1, done.stderr
            assert "NOT OFFERED" in done.stdout
        else:
            output(done)
    assert "critic was None, is 'pairs@" in Path("evals/compare-vote-4-best-of-4/compare.md").read_text("utf-8")


@pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed: pip install 'reasonrag[rl]'")
def test_what_the_page_of_reinforcement_trains_is_compared(train_python: Path, shared: Shared) -> None:
    """From trees to SFT, critic, rounds, evaluation and comparison, by the commands as written."""
    shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    for line in commands(pages=[ROUNDS]):
        output(finished(*words_of(line), environment=variables))
    assert Path("runs/rl-cpu/rounds.md").read_text("utf-8").count("\n| ") == 3
    assert Path("evals/compare-rl-before-rl-after/compare.md").is_file()


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
    [read] = [line for line in commands() if line.startswith("reasonrag import RAG_ProGuide.json ")]
    for line in (read, *(each for each in commands("bash") if "released" in each or "reasonrag-7b" in each)):
        small = line
        for written, less in (SMALLER | {"8000": rehearsal}).items():
            small = small.replace(written, less)
        output(finished(*words_of(small), environment=os.environ | variables))
    theirs = renderer_hash(load_prompts(Path("data/released/prompts")))
    for name, steps, order in (("released", 7, None), ("reasonrag-7b", 9, "worst-first")):
        report = orjson.loads(Path("evals", name, "report.json").read_bytes())
        asked = report["asked"]
        assert (asked["renderer"], asked["max_steps"], asked.get("passage_order")) == (theirs, steps, order)
        assert report["answered"] == 2
    model = ScriptedModel(["<answer>x</answer>"])
    asked_once = {"dataset": "atlas", "limit": 1, "run": "evals/seen"}
    reasonrag.evaluate(chat_model=model, trained_on="saves/released", **asked_once)
    assert model.requests[0].messages[0].content == BEGIN


@contextmanager
def judging(line: str) -> Iterator[None]:
    """The reader's part of a review: each page has a sheet of its own, in whose column verdict they write."""
    sheet = Path("sample.csv")
    if writes := f"--out {sheet}" in line:
        sheet.unlink(missing_ok=True)
    yield
    if writes:
        with sheet.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            rows, names = [row | {"verdict": "a"} for row in table], table.fieldnames or ()
        with sheet.open("w", newline="", encoding="utf-8") as file:
            written = csv.DictWriter(file, names)
            written.writeheader()
            written.writerows(rows)


@pytest.mark.usefixtures("qa")
def test_every_command_of_the_pages_runs(rehearsal: str, collection: dict[str, str], shared: Shared) -> None:
    """As written, with the simulated endpoint in the place of all real ones, a small Hub in that of the real one, a
    quick encoder, and smaller numbers. `make demo` has run before."""
    shared.copy("demo", make_demo)
    ran = set(demo_commands())
    servers: dict[str, tuple[str, str]] = {}

    def run_once(line: str, ports: dict[str, str]) -> None:
        if line in ran or TRAINS.search(line):
            return
        ran.add(line)
        there = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda port: ports[port[0]], quick(line))
        with_hub = collection if "--dataset hotpotqa" in line and "--data-dir" not in line else {}
        with judging(there):
            output(finished(*words_of(there), environment=os.environ | against(rehearsal) | with_hub))

    with ExitStack() as stack:
        for page in _others():
            write_files_of(page)
            ports = dict.fromkeys(("8000", "8001", "8765"), rehearsal)
            for line in commands(pages=[page]):
                if line.endswith("&"):
                    servers[line] = servers.get(line) or started(line, stack)
                    ports |= [servers[line]]
                else:
                    run_once(line, ports)
    assert len(Path("runs/h/rollouts.jsonl").read_bytes().splitlines()) == 15
    for folder in ("runs/h", "data/h"):
        listed = re.findall(rf"^ {{4}}{folder}/(\S+)", FIRST.read_text("utf-8"), re.MULTILINE)
        assert {path.name for path in Path(folder).iterdir()} - MADE_LATER == {".lock", *listed}


MADE_LATER = {"calibration", "view.html"}
"""By other commands than the two that make a run and a data set."""


def rounded_alike(shown: str, measured: float) -> bool:
    """Whether a number says what was measured, as exactly as its last figure: `1,570` to ten, `0.5` to a tenth."""
    number = shown.replace(",", "")
    zeros = len(number) - len(number.rstrip("0"))
    unit = 10.0 ** (-len(number.partition(".")[2]) if "." in number else zeros)
    return abs(float(number) - measured) <= unit / 2


COSTS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in README.read_text("utf-8").partition("## What it costs")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
][1:]
"""A row of the table for each recipe."""


@pytest.mark.usefixtures("qa")
@pytest.mark.parametrize("row", COSTS, ids=lambda row: row[0].split("`")[1])
def test_the_table_of_costs_is_what_the_command_above_it_says(row: list[str], reasonrag: Reasonrag) -> None:
    """For each recipe and model, on 100 questions and the passages of a folder: the Hub has more of both. What 5,000
    questions cost is fifty times that."""
    [command] = re.findall(r"`(reasonrag generate [^`]*MODEL --recipe RECIPE)`", README.read_text("utf-8"))
    recipe = row[0].split("`")[1]
    replies, *dollars, hours = row[1:]
    for place, model in enumerate(("gpt-4o", "gpt-6-luna")):
        words = words_of(command.replace("MODEL", model).replace("RECIPE", recipe))
        done = reasonrag(*words, "--json")
        said = orjson.loads(done.out)
        if said["measured_questions"] < 20:
            pytest.skip("this machine rehearses no 20 questions of the recipe in the time of an estimate")
        for shown, measured, factor in (
            (replies, said["calls"], 1 / 100),
            (dollars[place], said["dollars"], 1),
            (dollars[place + 2], said["dollars"], 50),
            (hours, said["hours"], 50),
        ):
            for number, end in zip(shown.replace("$", "").split(" to "), ("low", "high"), strict=True):
                assert rounded_alike(number, measured[end] * factor), (model, shown, measured)


def test_the_python_of_the_readme_runs() -> None:
    """As it stands, in a fresh interpreter."""
    [code] = blocks("python")
    assert re.fullmatch(r"5 questions, \d+ pairs\n", run([sys.executable, "-c", code]))


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), ROOT / "llms.txt"], ids=lambda page: page.name)
def test_every_file_that_a_page_of_the_root_names_exists(page: Path) -> None:
    """No link leads nowhere."""
    named = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8"))
    local = [each for each in named if not each.startswith("https://")]
    assert local
    for each in local:
        assert (ROOT / each).exists(), each


NAMED = re.compile(r"\b((?:reasonrag|preference|mcts)(?:\.[a-z_]+)+)(?![\w/])")
NO_MODULES = {"reasonrag.toml", "reasonrag.json"}


def test_every_test_that_the_promises_name_exists() -> None:
    pages = [ROOT / "docs" / "reference" / f"{name}.md" for name in ("promises", "security")]
    named = [each for page in pages for each in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text("utf-8"))]
    assert len(named) > 50
    tests = {path: (ROOT / "tests" / path).read_text("utf-8") for path, _ in named}
    assert [each for each in named if f"def {each[1]}(" not in tests[each[0]]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
def test_every_flag_the_pages_give_a_command_exists(command: str) -> None:
    """A flag that was renamed is renamed there too."""
    known = flags_of(COMMANDS[command]) | {"--help"}
    every = commands() + commands("bash")
    given = {flag for line in every if line.split()[1] == command for flag in re.findall(r"--[a-z-]+", line)}
    assert given <= known


def test_every_flag_the_pages_speak_of_exists() -> None:
    """Of whatever command."""
    known = set().union(*map(flags_of, COMMANDS.values())) | OF_OTHERS
    known |= set(re.findall("--[a-z-]+", endpoints.flags().format_help()))
    spoken = {(flag, page.name) for page in PAGES for flag in re.findall(r"`(--[a-z-]+)", page.read_text("utf-8"))}
    assert {each for each in spoken if each[0] not in known} == set()


OF_OTHERS = {
    "--help",
    "--version",
    "--install-completion",
    "--data-parallel-size",
    "--enable-auto-tool-choice",
    "--no-enable-prefix-caching",
    "--reasoning-parser",
}
"""Flags that are no command's own, and those of vLLM."""


def test_the_readme_is_short() -> None:
    """What it has no room for stands in a page of the site."""
    text = README.read_text("utf-8")
    assert (len(text.splitlines()) <= 130, len(text.split()) <= 1200) == (True, True)
