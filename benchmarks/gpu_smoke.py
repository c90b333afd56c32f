"""Our commands and a real vLLM, on one GPU, with models of random weights: does each take what the other says?

    python benchmarks/gpu_smoke.py --part evaluate --append benchmarks/RESULTS.md     # Qwen2.5-7B's shape
    python benchmarks/gpu_smoke.py --part generate --part critic                      # the 0.5B's
    python benchmarks/gpu_smoke.py --device cpu --shape tiny                          # to try it out, a minute

- generate: one served model as the teacher (several completions a request), as the value model of the offline teacher,
  and for `evaluate --method flare`, which needs log-probabilities. The teacher's run is made twice: do the same seeds
  give the same replies?
- evaluate: `reasonrag evaluate --model FOLDER`: seconds and tokens.
- critic: a sequence classifier with one label (`vllm serve --runner pooling`), asked at `/pooling` as the client of our
  critics asks, beside transformers on the same conversations.

Replies of random weights cannot be read: failed steps are data here, and a refused request is a finding. A part
that has not ended after `--minutes` is ended and reported as such. Exit status 1: a part failed; 2: something is
missing, and nothing was built.

Run once against vLLM 0.25.1, on an H100: RESULTS.md, 27 November 2026. `--device cpu` serves by our own server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from random_model import Conversation, build_command, environment, score_command, shape_of
from reporting import ROOT, gpus, publish, table

from preference.records import read_rollouts
from reasonrag.errors import InputError, ReasonragError
from reasonrag.processes.children import find_python
from reasonrag.serving.local_server import GRACE_S, LocalServer, VllmOptions, served
from reasonrag.training.doctor.memory import GB
from reasonrag.training.doctor.model_shapes import QWEN2_5

PARTS = ("generate", "evaluate", "critic")
SMALL = "0.5B"
"""Shape of the models that are not `evaluate`'s. Its heads of 64 suit every attention kernel; those of tiny may not."""
CONTEXT = 8192
"""Tokens of prompt and reply."""
TEXTS = 32
"""For the critic: states with a step."""
SPARE = 4 * GB
"""Disk beside evaluate's model."""
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


class PartFailedError(Exception):
    """What a part met that it cannot go on with."""


def main(
    *,
    part: Annotated[list[str] | None, typer.Option(help="generate, evaluate or critic; repeatable")] = None,
    shape: Annotated[str, typer.Option(help="Of evaluate's model: 0.5B to 72B; tiny: of every part's")] = "7B",
    device: Annotated[str, typer.Option(help="cuda (vLLM) or cpu (our own server)")] = "cuda",
    minutes: Annotated[float, typer.Option(min=0, help="A part that takes longer is ended")] = 8.0,
    scratch: Annotated[Path | None, typer.Option(help="Keep models and runs here")] = None,
    append: Annotated[Path | None, typer.Option(help="Add the report to this file")] = None,
) -> None:
    """Run our commands against vLLM with models of random weights, and print what came of it."""
    parts = [each for each in PARTS if each in (part or PARTS)]
    if (
        set(part or ()) - set(PARTS)
        or device not in ("cpu", "cuda")
        or shape not in QWEN2_5.keys() | {"tiny"}
        or (device == "cpu" and shape != "tiny")
    ):
        _refuse(
            [
                f"--part is {', '.join(PARTS)}",
                f"--shape is {', '.join(QWEN2_5)} or tiny",
                "--device is cuda, or cpu for --shape tiny",
            ]
        )
    os.environ.update(QUIET | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}))
    with tempfile.TemporaryDirectory() as temporary:
        place = (scratch or Path(temporary)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        stand, missing = _stand(place, device, shape, parts)
        if missing:
            _refuse(missing)
        smoke = Smoke(stand, place, shape, on_cpu=device == "cpu", minutes=minutes)
        publish(smoke.report(parts), append)
    sys.exit(int(smoke.failed))


def _refuse(reasons: list[str]) -> NoReturn:
    print("\n".join(reasons), file=sys.stderr)
    sys.exit(2)


@dataclass(frozen=True)
class Stand:
    """What the machine has. python: with torch and transformers."""

    python: Path
    versions: str
    where: str


def _stand(place: Path, device: str, shape: str, parts: list[str]) -> tuple[Stand, list[str]]:
    """It, and what is missing, each with what helps."""
    missing = []
    vllm = shutil.which("vllm") if device == "cuda" else None
    python, versions = _find_torch(vllm)
    if not versions:
        missing.append("no environment has torch and transformers 5: pip install torch 'transformers>=5'")
    found = gpus("name")
    if device == "cuda":
        if not found:
            missing.append("nvidia-smi lists no GPU; --device cpu --shape tiny tries this out")
        if vllm is None:
            missing.append("there is no vllm on PATH: pip install vllm; --device cpu --shape tiny tries this out")
        else:
            asked = subprocess.run([vllm, "--version"], capture_output=True, text=True, check=False)
            if asked.returncode:
                missing.append(f"vllm does not start: {asked.stderr.strip()[-500:]}")
            else:
                versions = f"vllm {asked.stdout.split()[-1]}, {versions}"
    wanted = (2 * shape_of(shape).parameters if "evaluate" in parts else 0) + SPARE
    if (free := shutil.disk_usage(place).free) < wanted:
        missing.append(
            f"{place} has {free / GB:.0f} GB free, the models take {wanted / GB:.0f}: give another folder as --scratch"
        )
    where = f"1 x {found[0]}" if device == "cuda" and found else "the CPU, our own server in place of vLLM"
    return Stand(python, versions, where), missing


def _find_torch(vllm: str | None) -> tuple[Path, str]:
    """The first environment with torch and transformers 5, and their versions: vLLM's, this one, LLaMA-Factory's."""
    places = [*([Path(vllm).resolve().with_name("python3")] if vllm else []), Path(sys.executable)]
    with suppress(InputError):
        places.append(find_python())
    code = (
        "from importlib.metadata import version as v; found = v('transformers'); assert int(found.split('.')[0]) > 4; "
        "print('torch', v('torch') + ', transformers', found)"
    )
    for python in filter(Path.is_file, places):
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return python, done.stdout.strip()
    return Path(sys.executable), ""


@dataclass
class Smoke:
    """What is run, and where."""

    stand: Stand
    place: Path
    shape: str
    on_cpu: bool
    minutes: float
    failed: bool = field(default=False, init=False)

    def report(self, parts: list[str]) -> Iterator[str]:
        yield f"\n{self.stand.versions}; {self.stand.where}. Weights are random: no reply can be read."
        for part in parts:
            began = time.monotonic()
            try:
                yield from asyncio.run(self._within(getattr(self, part)))
            except TimeoutError:
                self.failed = True
                yield f"\n{part}: ended after {self.minutes:g} minutes, which was not enough."
            except (PartFailedError, ReasonragError) as error:
                self.failed = True
                yield f"\n{part}: failed after {time.monotonic() - began:.0f} s. {error}"
            else:
                yield f"\n{part}: {time.monotonic() - began:.0f} s in all."

    async def _within(self, part: Callable[[], Awaitable[Iterator[str]]]) -> list[str]:
        async with asyncio.timeout(60 * self.minutes):
            return list(await part())

    # -- generate ------------------------------------------------------------------------------------------------

    async def generate(self) -> Iterator[str]:
        """Requests of three kinds to one served model."""
        rows: dict[str, list[str]] = {}
        asked = ("--dataset", "atlas", "--limit", "2" if self.on_cpu else "8", *self._short)
        tree = ("generate", *asked, "--abort-degenerate", "0")
        async with self._served(await self._model(SMALL)) as server:
            address = ("--base-url", server.base_url, "--price", f"{server.name}=0,0")
            roles = {
                "teacher": (*tree, "--model", server.name, *address),
                "value model": (*tree, "--value-model", server.name, "--value-base-url", server.base_url),
                "flare": ("evaluate", *asked, "--method", "flare", "--model", server.name, *address),
            }
            for role, words in roles.items():
                said, run = await self._reasonrag(f"{role.split()[0]}-1", *words)
                model = server.name if role == "value model" else None
                first, same = _replies(run, model), "-"
                if role == "teacher":
                    _, again = await self._reasonrag(f"{role.split()[0]}-2", *words)
                    second = _replies(again, model)
                    same = f"{sum(second.get(key) == text for key, text in first.items())} of {len(first)}"
                _add(
                    rows,
                    {
                        "as": role,
                        "questions": f"{said.get('done', said.get('answered'))} of {said['questions']}",
                        "its replies": f"{len(first)}",
                        "steps unreadable": _by_cause(said["parse_failures_by_cause"]),
                        "questions failed": _by_cause(said["failures_by_cause"]),
                        "parameters refused": _by_cause(said["refused_parameters"]),
                        "same in a second run": same,
                    },
                )
        return table(f"generate: one served model, {self._named(SMALL)}, in three roles", rows)

    # -- evaluate ------------------------------------------------------------------------------------------------

    async def evaluate(self) -> Iterator[str]:
        """Served by the command itself."""
        folder = await self._model(self.shape)
        began = time.monotonic()
        limit = "2" if self.on_cpu else "32"
        words = ("--dataset", "atlas", "--limit", limit, "--model", str(folder), "--max-model-len", str(CONTEXT))
        said, _ = await self._reasonrag("evaluate", "evaluate", *words, *self._short)
        if not said["answered"]:
            raise PartFailedError(f"no question was answered: {_by_cause(said['failures_by_cause'])}")
        whole = time.monotonic() - began
        row = {
            "questions": f"{said['answered']} of {said['questions']}",
            "completions": f"{said['usage']['calls']:,}",
            "prompt tokens": f"{said['usage']['prompt_tokens']:,}",
            "reply tokens": f"{said['usage']['completion_tokens']:,}",
            "s with the server's start": f"{whole:.0f}",
            "questions read": f"{1 - said['metrics']['malformed']['value']:.0%}",
            "parameters refused": _by_cause(said["refused_parameters"]),
        }
        return table(f"evaluate: {self._named(self.shape)}", {name: [value] for name, value in row.items()})

    # -- critic --------------------------------------------------------------------------------------------------

    async def critic(self) -> Iterator[str]:
        """Scores of vLLM beside those of transformers."""
        folder = await self._model(SMALL, classifier=True)
        _, run = await self._reasonrag("states", "generate", "--dataset", "atlas", "--limit", "4", "--model", "offline")
        asked = self.place / "conversations.json"
        asked.write_text(json.dumps(_conversations(run)[:TEXTS]), "utf-8")
        known = await self._with_torch(score_command(self.stand.python, folder, asked))
        raw = known["bfloat16"]
        async with self._served(folder) as server:
            address = f"{server.base_url.removesuffix('/v1')}/pooling"
            how = {"model": server.name, "task": "classify", "use_activation": False, "add_generation_prompt": False}
            began = time.monotonic()
            said = [
                await asyncio.to_thread(_score, address, how | {"messages": each})
                for each in json.loads(asked.read_text("utf-8"))
            ]
            seconds = time.monotonic() - began
        if refused := [each for each in said if isinstance(each, str)]:
            raise PartFailedError(f"{len(refused)} of {len(said)} conversations got no score: {refused[0]}")
        scores = [each for each in said if isinstance(each, float)]
        alike = [(scores[i] < scores[j]) == (raw[i] < raw[j]) for i, j in combinations(range(len(scores)), 2)]
        row = {
            "largest difference": f"{max(abs(one - other) for one, other in zip(scores, raw, strict=True)):.4f}",
            "pairs in the same order": f"{statistics.mean(alike):.1%}",
            "s, one by one": f"{seconds:.2f}",
        }
        noise = max(abs(one - other) for one, other in zip(raw, known["float32"], strict=True))
        title = (
            f"critic: {len(raw)} conversations, {self._named(SMALL)} with one label. Differences are from transformers "
            f"in bfloat16, whose raw scores have a standard deviation of {statistics.stdev(raw):.3f} and differ from "
            f"those in float32 by at most {noise:.4f}"
        )
        return table(title, {name: [value] for name, value in row.items()})

    # -- what parts share ----------------------------------------------------------------------------------------

    @property
    def _short(self) -> tuple[str, ...]:
        return ("--max-reply-tokens", "16") if self.on_cpu else ()

    def _named(self, shape: str) -> str:
        name = "tiny" if self.shape == "tiny" else shape
        return f"shape {name} ({shape_of(name).parameters / 1e6:,.0f} M)"

    async def _model(self, shape: str, *, classifier: bool = False) -> Path:
        name = "tiny" if self.shape == "tiny" else shape
        folder = self.place / f"{name.lower()}{'-critic' if classifier else ''}"
        if command := build_command(self.stand.python, folder, shape_of(name), classifier=classifier):
            _say(f"building {folder}")
            await self._with_torch(command)
        return folder

    def _served(self, folder: Path) -> AbstractAsyncContextManager[LocalServer]:
        return served(folder, say=_say, vllm=VllmOptions(max_model_len=CONTEXT))

    async def _with_torch(self, command: list[str]) -> Any:
        status, out, said = await self._run(command, environment(self.stand.python, on_cpu=self.on_cpu))
        if status:
            raise PartFailedError(f"{Path(command[1]).name} {command[2]} ended with status {status}:\n{said}")
        return json.loads(out.splitlines()[-1])

    async def _reasonrag(self, name: str, *words: str) -> tuple[dict[str, Any], Path]:
        """What a command says as JSON, and its folder; that of an earlier run is removed first."""
        run = self.place / "runs" / name
        shutil.rmtree(run, ignore_errors=True)
        told = [*words, "--run", str(run), "--json"]
        _say(f"$ {shlex.join(['reasonrag', *told])}")
        command = [sys.executable, "-m", "reasonrag", *told]
        status, out, said = await self._run(command, os.environ | {"PYTHONPATH": str(ROOT)})
        if status not in (0, 1) or not out:  # 1: some question failed, which its figures say
            raise PartFailedError(f"`reasonrag {words[0]}` ended with status {status}:\n{said}")
        self.failed |= status == 1
        return json.loads(out), run

    async def _run(self, command: list[str], environ: dict[str, str]) -> tuple[int | None, str, str]:
        """Its exit status, output, and the last lines of what it said beside that."""
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.place, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            out, said = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            await asyncio.sleep(3 * GRACE_S)  # until a server that it started is gone, and the GPU is free
            raise
        last = [f"    {line}" for line in said.decode("utf-8", "replace").splitlines()[-15:]]
        return process.returncode, out.decode(), "\n".join(last)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _add(rows: dict[str, list[str]], row: dict[str, str]) -> None:
    for name, value in row.items():
        rows.setdefault(name, []).append(value)


def _by_cause(counted: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in counted.items()) or "none"


def _replies(run: Path, model: str | None) -> dict[str, str]:
    """Of a run's journal, by key; model: of this one only, beside a teacher."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text("utf-8").splitlines()]
    return {
        key: completion["text"]
        for line in lines
        if line.get("model") == model
        for key, completion in zip(line["keys"], line["completions"], strict=True)
    }


def _conversations(run: Path) -> list[Conversation]:
    """States of a run with the step that was taken there, as the policy saw and said them."""
    return [
        [
            *(turn.model_dump(include={"role", "content"}) for turn in node.prompt),
            {"role": "assistant", "content": said},
        ]
        for rollout in read_rollouts(run / "rollouts.jsonl")
        for node in rollout.nodes
        if (said := node.response)
    ]


def _score(address: str, body: dict[str, Any]) -> float | str:
    """The number, or in words why there is none."""
    request = urllib.request.Request(  # noqa: S310 - a server that was started here
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            found = json.loads(answer.read())
        return float(found["data"][0]["data"][0])
    except urllib.error.HTTPError as error:
        said = re.sub(r"[\s|]+", " ", error.read(300).decode("utf-8", "replace"))
        return f"status {error.code}: {said}"
    except OSError as error:
        return f"no answer: {error}"
    except (KeyError, IndexError, TypeError, ValueError):
        return f"not understood: {json.dumps(found)[:200]}"


if __name__ == "__main__":
    typer.run(main)
