"""Queries per second of one flat index, and of a front over its shards, by turns on one machine.

Shows what a front costs where shards bring nothing: all servers and the client share the cores. On a machine each,
shards search side by side, which is not measured here.

    .venv/bin/python benchmarks/sharded_index.py [--passages 200000] [--shards 2] [--append benchmarks/RESULTS.md]
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Optional

import orjson
import typer
from reporting import publish, table

from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.encoders import EncoderChoice
from reasonrag.retrieval.remote import open_remote

ENCODER, WORDS, ROUNDS, SECONDS, CLIENTS, TOP_K = "hashing-384", 20_000, 5, 10.0, 64, 3


def main(
    passages: Annotated[int, typer.Option(help="Of the index")] = 200_000,
    shards: Annotated[int, typer.Option(help="Servers behind the front")] = 2,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045
) -> None:
    """Measure and print a report."""
    with tempfile.TemporaryDirectory() as place:
        publish(measured(Path(place), passages, shards), append)


def measured(place: Path, passages: int, shards: int) -> Iterator[str]:
    """The report: rates of both by turns, each first as often as the other but for one round."""
    chosen = random.Random(0)
    with (place / "corpus.jsonl").open("wb") as file:
        for row in range(passages):
            contents = f"{row}\n{text(chosen, 40)}"
            file.write(orjson.dumps({"id": str(row), "contents": contents}) + b"\n")
    build_dense(place / "corpus.jsonl", place / "index", BuildOptions(encoder=EncoderChoice(model=ENCODER)))
    queries = (text(chosen, 6) for _ in itertools.count())
    rates: dict[str, list[float]] = {"one index": [], f"front over {shards} shards": []}
    with ExitStack() as running:
        one = running.enter_context(server("--index", place / "index"))
        parts = [
            running.enter_context(server("--index", place / "index", "--shard", f"{number}/{shards}"))
            for number in range(shards)
        ]
        front = running.enter_context(server(*itertools.chain.from_iterable(("--shard-url", each) for each in parts)))
        asyncio.run(check_equal(one, front, [next(queries) for _ in range(20)]))
        by_name = dict(zip(rates, (one, front), strict=True))
        for number in range(ROUNDS):
            for name in list(rates)[:: 1 if number % 2 == 0 else -1]:
                rates[name].append(asyncio.run(rate(by_name[name], queries)))
    columns = {
        "": list(rates),
        "queries/s, median": [f"{statistics.median(each):.0f}" for each in rates.values()],
        "by round": [" ".join(f"{each:.0f}" for each in several) for several in rates.values()],
    }
    yield from table(
        f"Queries per second, {passages:,} passages, {ENCODER}, flat, top {TOP_K}, {CLIENTS} clients in one process, "
        f"{ROUNDS} rounds of {SECONDS:g} s by turns; all processes on the same cores",
        columns,
    )


def text(chosen: random.Random, words: int) -> str:
    return " ".join(f"w{chosen.randrange(WORDS)}" for _ in range(words))


@contextmanager
def server(*flags: object) -> Iterator[str]:
    """The address of `reasonrag index serve` with these flags."""
    words = [sys.executable, "-m", "reasonrag", "index", "serve", "--port", "0", *map(str, flags)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(iter(process.stdout or ())).split()[2]
        finally:
            process.kill()


async def rate(url: str, queries: Iterator[str]) -> float:
    """Queries answered per second to CLIENTS clients that each ask again at once."""
    retriever = await open_remote(url, token=None)
    begun, answered = time.perf_counter(), 0

    async def client() -> None:
        nonlocal answered
        while time.perf_counter() - begun < SECONDS:
            await retriever.retrieve(next(queries), TOP_K)
            answered += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    seconds = time.perf_counter() - begun
    await retriever.close()
    return answered / seconds


async def check_equal(one: str, other: str, queries: list[str]) -> None:
    """Ends the program if the two find different passages or scores."""
    retrievers = [await open_remote(each, token=None) for each in (one, other)]
    for query in queries:
        found, again = [await each.retrieve(query, 20) for each in retrievers]
        if found != again:
            sys.exit(f"{query}: the two find different passages")
    for each in retrievers:
        await each.close()


if __name__ == "__main__":
    typer.run(main)
