"""The command line: a command parses its flags, calls one function, and shows the result.

Results go to stdout, progress and errors to stderr. Exit status: 0 every question has a rollout, 1 some question has an
error, 2 bad input and nothing started, 130 interrupted. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from reasonrag import __version__
from reasonrag.errors import InputError, ReasonragError
from reasonrag.settings import GenerateSettings, IndexSettings, PairsSettings, Settings

app = typer.Typer(
    name="reasonrag",
    help="From questions and a corpus to step-level preference data for agentic RAG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
index_app = typer.Typer(help="Indexes over a corpus.", no_args_is_help=True)
app.add_typer(index_app, name="index")


FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def _flag(model: type[Settings], name: str, panel: str | None = None) -> Any:
    """A flag whose help and default are those of the setting."""
    field = model.model_fields[name]
    shown = "" if field.default is None or field.is_required() else f" [default: {field.default}]"
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description}{shown}".replace("[", r"\["),  # a bracket would be markup
        rich_help_panel=panel,
        show_default=False,
    )


def _generate_flag(name: str, panel: str) -> Any:
    return _flag(GenerateSettings, name, panel)


DATA, AGENT, SEARCH, MACHINE = "What is asked", "Who answers", "How it is explored", "How it runs"
JSON = typer.Option("--json", help="One JSON object on stdout instead of a table")


def _version(asked: bool) -> None:
    if asked:
        print(f"reasonrag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """From questions and a corpus to step-level preference data for agentic RAG."""


@app.command()
def generate(
    run: Annotated[Optional[Path], _generate_flag("run", MACHINE)] = None,
    dataset: Annotated[Optional[str], _generate_flag("dataset", DATA)] = None,
    split: Annotated[Optional[str], _generate_flag("split", DATA)] = None,
    limit: Annotated[Optional[int], _generate_flag("limit", DATA)] = None,
    data_dir: Annotated[Optional[Path], _generate_flag("data_dir", DATA)] = None,
    questions: Annotated[Optional[Path], _generate_flag("questions", DATA)] = None,
    corpus: Annotated[Optional[Path], _generate_flag("corpus", DATA)] = None,
    index: Annotated[Optional[Path], _generate_flag("index", DATA)] = None,
    index_home: Annotated[Optional[Path], _generate_flag("index_home", DATA)] = None,
    top_k: Annotated[Optional[int], _generate_flag("top_k", DATA)] = None,
    model: Annotated[Optional[str], _generate_flag("model", AGENT)] = None,
    base_url: Annotated[Optional[str], _generate_flag("base_url", AGENT)] = None,
    prompts: Annotated[Optional[Path], _generate_flag("prompts", AGENT)] = None,
    temperature: Annotated[Optional[float], _generate_flag("temperature", AGENT)] = None,
    top_p: Annotated[Optional[float], _generate_flag("top_p", AGENT)] = None,
    max_tokens: Annotated[Optional[int], _generate_flag("max_tokens", AGENT)] = None,
    recipe: Annotated[Optional[str], _generate_flag("recipe", SEARCH)] = None,
    siblings: Annotated[Optional[int], _generate_flag("siblings", SEARCH)] = None,
    continuations: Annotated[Optional[int], _generate_flag("continuations", SEARCH)] = None,
    simulations: Annotated[Optional[int], _generate_flag("simulations", SEARCH)] = None,
    max_calls_per_question: Annotated[Optional[int], _generate_flag("max_calls_per_question", SEARCH)] = None,
    max_steps: Annotated[Optional[int], _generate_flag("max_steps", SEARCH)] = None,
    seed: Annotated[Optional[int], _generate_flag("seed", SEARCH)] = None,
    concurrency: Annotated[Optional[int], _generate_flag("concurrency", MACHINE)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Explore questions with a teacher and write step-level rollouts."""
    flags = {name: value for name, value in locals().items() if name != "as_json"}
    from reasonrag.display import TerminalWatcher, show_run
    from reasonrag.generation import generate as generate_run

    try:
        summary = generate_run(watcher=TerminalWatcher(), **flags)
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print(summary.model_dump_json())
    else:
        show_run(summary)
    if summary.failed:
        raise typer.Exit(FAILED)


@app.command()
def pairs(
    run: Annotated[Path, typer.Argument(help="Run directory of generate")],
    out: Annotated[Optional[Path], _flag(PairsSettings, "out")] = None,
    min_margin: Annotated[Optional[float], _flag(PairsSettings, "min_margin")] = None,
    allow_malformed: Annotated[
        Optional[bool],
        typer.Option("--allow-malformed", help=PairsSettings.model_fields["allow_malformed"].description),
    ] = None,
    all_pairs: Annotated[
        Optional[bool], typer.Option("--all-pairs", help=PairsSettings.model_fields["all_pairs"].description)
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Turn the sibling steps of a run into RAG_ProGuide preference pairs."""
    from reasonrag.display import show_pairs
    from reasonrag.pairing import pairs as make_pairs

    summary = make_pairs(run, out=out, min_margin=min_margin, allow_malformed=allow_malformed, all_pairs=all_pairs)
    if as_json:
        print(summary.model_dump_json())
    else:
        show_pairs(summary)


@index_app.command("build")
def index_build(
    corpus: Annotated[Optional[Path], _flag(IndexSettings, "corpus")] = None,
    out: Annotated[Optional[Path], _flag(IndexSettings, "out")] = None,
    index_home: Annotated[Optional[Path], _flag(IndexSettings, "index_home")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Build a BM25 index of a corpus; generate does so by itself when one is missing."""
    from reasonrag.indexing import index_build as build

    directory, manifest = build(corpus=corpus, out=out, index_home=index_home)
    if as_json:
        print(manifest.model_dump_json())
    else:
        print(f"wrote {directory} ({manifest.passages:,} passages)")


@app.command("simulate-endpoint")
def simulate_endpoint(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")] = 8765,
    latency: Annotated[float, typer.Option(min=0, help="Seconds every answer takes")] = 0.0,
    ignore_n: Annotated[bool, typer.Option("--ignore-n", help="Give one choice whatever is asked")] = False,
    ignore_stop: Annotated[bool, typer.Option("--ignore-stop", help="Run on past the stop string")] = False,
    fail_every: Annotated[
        int, typer.Option(min=0, help="Answer every so-manieth request with status 503; 0 never")
    ] = 0,
    api_key: Annotated[Optional[str], typer.Option(help="Let in only this key [default: everybody]")] = None,
) -> None:
    """Serve the offline teacher as an OpenAI-compatible endpoint, for rehearsals that cost nothing."""
    import asyncio

    from reasonrag.simulation import Habits, serve_forever

    habits = Habits(latency, ignore_n, ignore_stop, fail_every, api_key)

    def say(base_url: str) -> None:
        print(f"serving at {base_url}  (stop with Ctrl-C)", flush=True)
        print(f"try: reasonrag generate --model offline --base-url {base_url} --run runs/rehearsal", flush=True)

    try:
        asyncio.run(serve_forever(habits, host=host, port=port, say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except (ReasonragError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


def main() -> None:
    """Entry point of the `reasonrag` script."""
    sys.exit(run(sys.argv[1:]))
