"""A training of real size beside the plan that `reasonrag doctor` makes of it: seconds a step, memory at its peak.

    .venv/bin/python benchmarks/gpu_training.py --method lora --append benchmarks/RESULTS.md    # 7B; or qlora, or full
    .venv/bin/python benchmarks/gpu_training.py --shape 3B --method full     # where the host has 128 GB of memory
    .venv/bin/python benchmarks/gpu_training.py --shape tiny --device cpu    # to try it out, 2 minutes

Builds a model of Qwen2.5's shape with random weights, no hub needed, and has LLaMA-Factory train it for a few steps
with the settings of train_configs/, on rows that are all as long as `cutoff_len`: the worst that data can do. Full
training is by ZeRO-3, with offload on one GPU: for 7B that is planned with 142 GB of the host's memory, for 3B with 58.
What the machine lacks is said before anything is built (exit status 2).

Not yet run on a GPU: where this was written there was none. On a CPU, with a tiny shape, all of it runs but CUDA,
DeepSpeed and 4 bits. There the peak of the whole process says little, so a training at 64 tokens is
taken off, from the measurement and from the plan.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import orjson
import typer
from random_model import build_command, environment, shape_of
from reporting import ROOT, gpus, publish, table

from preference.export.formats import FORMATS, dataset_info
from reasonrag.curation.audit.report import read_audit
from reasonrag.errors import ReasonragError
from reasonrag.processes.children import find_python
from reasonrag.training.doctor.memory import GB, Adapter, TrainingSetup, Zero, plan_memory
from reasonrag.training.doctor.model_shapes import ModelShape, find_shape
from reasonrag.training.llamafactory.config_files import as_yaml, find_config
from reasonrag.training.llamafactory.inspection import TrainingEnvironment, inspect_environment
from reasonrag.training.preflight_checks import PreflightFindings, check_packages

LONGEST_ROW = 2432
"""`cutoff_len` for RAG_ProGuide, whose longest row has 2,390 tokens: the next multiple of 64."""
BASELINE = 64
"""Tokens of the training that is taken off on a CPU."""
Method = Literal["lora", "qlora", "full"]


@dataclass(frozen=True)
class Measured:
    """A training. peak: bytes of the fullest GPU, or of the process; allocated: what torch knows of, else 0."""

    seconds_per_step: float
    tokens_per_second: float
    peak: int
    allocated: int


def main(
    *,
    shape: Annotated[str, typer.Option(help="tiny, or a size of Qwen2.5: 0.5B to 72B")] = "7B",
    device: Annotated[str, typer.Option(help="cuda or cpu")] = "cuda",
    method: Annotated[list[str] | None, typer.Option(help="lora, qlora or full; repeatable [default: all]")] = None,
    cutoff: Annotated[int | None, typer.Option(help="cutoff_len [default: the audit's, else 2,432]")] = None,
    data: Annotated[Path | None, typer.Option(help="Data set whose audit says cutoff_len")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Steps of each training")] = 6,
    scratch: Annotated[Path | None, typer.Option(help="Keep model and logs here")] = None,
    append: Annotated[Path | None, typer.Option(help="Add the report to this file")] = None,
) -> None:
    """Measure trainings of a model with random weights, and print them beside the plan."""
    methods = method or (["lora", "full"] if device == "cpu" else ["lora", "qlora", "full"])
    if (
        device not in ("cpu", "cuda")
        or set(methods) - {"lora", "qlora", "full"}
        or (device == "cpu" and shape != "tiny")
    ):
        _refuse("--device is cuda or cpu, --method lora, qlora or full; a cpu is for --shape tiny, lora and full")
    with tempfile.TemporaryDirectory() as temporary:
        place = (scratch or Path(temporary)).absolute()
        try:
            tokens = cutoff or (read_audit(data).advised_cutoff if data else None) or LONGEST_ROW
            python = find_python()
            stock = inspect_environment(python, {}).stock
            bench = Bench(python, stock, place, shape_of(shape), on_cpu=device == "cpu", steps=steps)
        except ReasonragError as error:
            _refuse(str(error))
        if missing := bench.missing(methods, tokens):
            _refuse("\n".join(missing))
        bench.build()
        publish(bench.report(shape, methods, tokens), append)


def _refuse(reason: str) -> NoReturn:
    print(reason, file=sys.stderr)
    sys.exit(2)


@dataclass
class Bench:
    """What is measured, and where."""

    python: Path
    stock: TrainingEnvironment
    place: Path
    shape: ModelShape
    on_cpu: bool
    steps: int

    def missing(self, methods: list[str], tokens: int) -> list[str]:
        """What this machine lacks, each with what helps."""
        if not self.on_cpu and not self.stock.devices:
            return ["torch sees no GPU: reasonrag doctor says why; --shape tiny --device cpu tries this out"]
        found = [] if "llamafactory" in self.stock.versions else [f"{self.python} has no llamafactory: make train-env"]
        for method in methods:
            config = find_config(str(self._config(method))).values
            lacking = PreflightFindings()
            check_packages(config, self.stock, lacking)
            found += [f"{method}: {each.what}" for each in lacking.objections]
            host = plan_memory(self.shape, self.training(method, tokens)).host
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if host > free:
                says = f"is planned with {host / GB:.0f} GB of the host's memory, {free / GB:.0f} are free"
                found.append(f"{method} {says}: leave it out, or take a smaller --shape")
        return found

    def build(self) -> None:
        """The model, unless an earlier run left it."""
        model = self.place / "model"
        if model.exists() and find_shape(str(model)) != self.shape:
            shutil.rmtree(model)
        if command := build_command(self.python, model, self.shape):
            built = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
            if built.returncode:
                sys.exit(built.stderr)
            if (count := int(built.stdout.split()[-1])) != self.shape.parameters:
                sys.exit(f"the model has {count:,} parameters, {self.shape.parameters:,} were planned with")

    def report(self, name: str, methods: list[str], tokens: int) -> Iterator[str]:
        _write_rows(self.place / "data", tokens, count=2 * self.steps * max(1, len(self.stock.devices)))
        rows = []
        for method in methods:
            planned = plan_memory(self.shape, self.training(method, tokens))
            found = self.train(method, tokens)
            expected = planned.gpu
            if self.on_cpu:
                less = self.train(method, BASELINE)
                expected -= plan_memory(self.shape, self.training(method, BASELINE)).gpu
                found = Measured(found.seconds_per_step, found.tokens_per_second, found.peak - less.peak, 0)
            rows.append((planned, expected, found))
        where = "the CPU" if self.on_cpu else f"{len(self.stock.devices)} x {self.stock.devices[0].name}"
        versions = ", ".join(
            f"{each} {self.stock.versions.get(each, '-')}" for each in ("llamafactory", "torch", "deepspeed")
        )
        yield f"\n{versions}; {where}."
        what = "above that at 64 tokens" if self.on_cpu else "of the fullest GPU"
        yield from table(
            f"DPO of Qwen2.5's shape {name} with random weights ({self.shape.parameters / 1e6:,.0f} M), a pair a GPU, "
            f"every row {tokens:,} tokens; peak {what}",
            {
                "method": [each.training.name for each, _, _ in rows],
                "s a step": [f"{found.seconds_per_step:.2f}" for _, _, found in rows],
                "tokens/s": [f"{found.tokens_per_second:,.0f}" for _, _, found in rows],
                "planned GB": [f"{expected / GB:.2f}" for _, expected, _ in rows],
                "measured GB": [f"{found.peak / GB:.2f}" for _, _, found in rows],
                "of it torch's GB": [f"{found.allocated / GB:.2f}" if found.allocated else "-" for _, _, found in rows],
                "planned / measured": [
                    f"{expected / found.peak:.2f}" if found.peak > 0 else "-" for _, expected, found in rows
                ],
            },
        )

    def training(self, method: str, tokens: int) -> TrainingSetup:
        """What is planned: as `train` sets it up."""
        processes = 1 if self.on_cpu else len(self.stock.devices)
        spread = method == "full" and not self.on_cpu
        alone = spread and processes == 1
        return TrainingSetup(
            method=method,  # type: ignore[arg-type]
            cutoff_len=tokens,
            gpus=processes,
            zero=Zero(stage=3 if spread else 0, offload_optimizer=alone, offload_parameters=alone),
            adapter=Adapter(rank=8 if self.on_cpu else 64),
            half=not self.on_cpu,
        )

    def train(self, method: str, tokens: int) -> Measured:
        """Some steps by LLaMA-Factory, in a process of its own."""
        out = self.place / f"{method}-{tokens}"
        shutil.rmtree(out, ignore_errors=True)
        changes = {
            "model_name_or_path": str(self.place / "model"),
            "dataset_dir": str(self.place / "data"),
            "output_dir": str(out),
            "cutoff_len": tokens,
            "gradient_accumulation_steps": 1,
            "max_steps": self.steps,
            "eval_strategy": "no",
            "save_strategy": "no",
            "logging_steps": 1,
            "plot_loss": False,
            "eval_dataset": None,
        }
        config = self.place / f"{out.name}.yaml"
        values = find_config(str(self._config(method))).values | changes
        config.write_text(as_yaml({key: value for key, value in values.items() if value is not None}, "measured"))
        log = self.place / f"{out.name}.log"
        with log.open("w") as said:
            peak = self._watch([str(self.python), "-m", "llamafactory.cli", "train", str(config)], said)
        results = out / "train_results.json"
        if not results.exists():
            sys.exit(
                "\n".join(log.read_text(errors="replace").splitlines()[-15:]) + f"\nno result of {method}; see {log}"
            )
        seconds = json.loads(results.read_text())["train_runtime"] / self.steps
        processes = 1 if self.on_cpu else len(self.stock.devices)
        logged = [json.loads(line) for line in (out / "trainer_log.jsonl").read_text().splitlines()]
        allocated = max((each.get("vram_allocated", 0) for each in logged), default=0)
        return Measured(seconds, 2 * tokens * processes / seconds, peak, int(allocated * GB))

    def _config(self, method: str) -> Path:
        if self.on_cpu:
            return ROOT / "train_configs" / f"smoke-cpu-dpo-{method}.yaml"
        alone = "-offload" if method == "full" and len(self.stock.devices) == 1 else ""
        return ROOT / "train_configs" / f"qwen2.5-7b-dpo-{method}{alone}.yaml"

    def _watch(self, command: list[str], said: Any) -> int:
        """Run it; the most that a GPU, or the largest of its processes, held at any of the times one looked."""
        peak = 0
        environment = self._environment() | {"RECORD_VRAM": "1"} | ({} if self.on_cpu else {"FORCE_TORCHRUN": "1"})
        with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT) as process:
            while process.poll() is None:
                peak = max(peak, _resident(process.pid) if self.on_cpu else _in_use())
                time.sleep(0.05 if self.on_cpu else 0.5)
        return peak

    def _environment(self) -> dict[str, str]:
        return environment(self.python, on_cpu=self.on_cpu)


def _write_rows(folder: Path, tokens: int, *, count: int) -> None:
    """Pairs whose prompts are longer than `cutoff_len`, so that each fills it to the token."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "instruction": "You answer the question step by step.",
            "input": " ".join(f"word {number} of row {row}" for number in range(tokens // 4)),
            "chosen": f"So the answer is <answer>{row}</answer>",
            "rejected": f"So the next query is <query>{row}</query>",
        }
        for row in range(count)
    ]
    (folder / FORMATS["proguide"].file_name("train")).write_bytes(orjson.dumps(rows))
    (folder / "dataset_info.json").write_bytes(orjson.dumps(dataset_info([("proguide", "train")])))


def _in_use() -> int:
    """Bytes in use on the fullest GPU; nothing else should be running there."""
    return max((int(each) * 2**20 for each in gpus("memory.used")), default=0)


def _resident(pid: int) -> int:
    """Bytes of a process that are in memory, at most so far."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has ended since
        return 0
    return 0


if __name__ == "__main__":
    typer.run(main)
