"""A model's folder served by vLLM: how it is started, by a program on PATH that notes its command line and answers.

vLLM itself has run once, by benchmarks/gpu_smoke.py. How either server is ended. The other server: test_server.py.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from reasonrag.errors import InputError, ReasonragError, RunStopped
from reasonrag.llm.critic import critic_spec, find_critic, open_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.serving.local_server import VllmOptions, served
from tests.helpers.processes import until
from tests.reasonrag.llm.test_critic import FACTS, folder_of

VLLM = f"""#!{sys.executable}
import http.server, pathlib, subprocess, sys

pathlib.Path(__file__).with_name("told").write_text("\\n".join(sys.argv[1:]))
subprocess.Popen(["sh", "-c", "sleep 600; exit", *sys.argv])


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""
TWO_GPUS = "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: a)'; echo 'GPU 1: NVIDIA H100 (UUID: b)'\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its programs: vllm, and the driver's, which lists two GPUs."""
    for name, script in (("vllm", VLLM), ("nvidia-smi", TWO_GPUS)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def processes_about(folder: Path) -> list[int]:
    """Of this machine, those whose command line names the folder, this one apart."""
    found = []
    for each in filter(lambda place: place.name.isdigit(), Path("/proc").iterdir()):
        try:
            named = str(folder).encode() in (each / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if named and int(each.name) != os.getpid():
            found.append(int(each.name))
    return found


def folder(place: Path, *names: str, config: str = "{}") -> Path:
    (place / "trained").mkdir()
    for name in names:
        (place / "trained" / name).write_text(config if name.endswith("config.json") else "{}")
    return place / "trained"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (VllmOptions(), ""),
        (VllmOptions(max_model_len=8192), "--max-model-len 8192"),
        (VllmOptions(2, 8192), "--tensor-parallel-size 2 --max-model-len 8192"),
        (VllmOptions(beside=True), "--gpu-memory-utilization 0.45"),
    ],
)
async def test_vllm_serves_a_folder_as_it_is_told(options: VllmOptions, told: str, machine: Path) -> None:
    """Under the folder's name, on loopback only; options that are not given keep vLLM's defaults."""
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    said: list[str] = []
    async with served(model, say=said.append, vllm=options) as server:
        port = server.base_url.removeprefix("http://127.0.0.1:").removesuffix("/v1")
        assert server.name == "trained"
    named = f"serve {model} --served-model-name trained --host 127.0.0.1 --port {port} --generation-config vllm"
    assert (machine / "told").read_text().split() == f"{named} {told}".split()
    assert said[0] == f"loading {model} with vllm"


async def test_vllm_serves_an_adapter_on_its_base_model(machine: Path) -> None:
    """Which gets the options: the weights that are divided are its own."""
    base = '{"base_model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}'
    model = folder(machine, "adapter_config.json", "adapter_model.safetensors", config=base)
    async with served(model, say=print, vllm=VllmOptions(2)) as server:
        assert server.name == "trained"
    told = (machine / "told").read_text().replace("\n", " ")
    assert told.startswith("serve Qwen/Qwen2.5-7B-Instruct --enable-lora ")
    assert f"--lora-modules trained={model} " in told
    assert told.endswith("--tensor-parallel-size 2")


@pytest.mark.parametrize(
    ("visible", "wanted", "says"),
    [
        (None, 3, "--tensor-parallel 3: vLLM would see 2 GPUs here"),
        ("1", 2, "--tensor-parallel 2: .* 1 GPU here"),
        ("1,-1,0", 2, ".* 1 GPU here"),
    ],
)
async def test_more_gpus_than_there_are_is_said_before_vllm_starts(
    visible: str | None, wanted: int, says: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES may hide some."""
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    with pytest.raises(InputError, match=says):
        async with served(model, say=print, vllm=VllmOptions(wanted)):
            pass
    assert not (machine / "told").exists()


async def test_vllm_serves_the_scores_of_a_classifier(machine: Path) -> None:
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    (model / "config.json").write_text('{"architectures": ["Qwen2ForSequenceClassification"]}')
    async with served(model, say=lambda _: None):
        pass
    assert (machine / "told").read_text().split()[-2:] == ["--runner", "pooling"]


@pytest.mark.parametrize("beside", [True, False])
async def test_a_critic_beside_a_model_of_ours_leaves_it_half_of_the_gpu(beside: bool, machine: Path) -> None:
    found = find_critic(str(folder_of(machine / "critic", FACTS)))
    spec = critic_spec(found, Limits(4, 10.0))
    async with AsyncExitStack() as opened:
        await open_critic(found, spec, opened, say=print, beside=beside)
    assert ("--gpu-memory-utilization" in (machine / "told").read_text()) is beside


# -- for as long as it is needed -----------------------------------------------------------------------------------


def test_nothing_of_a_server_outlives_a_parent_that_is_killed(machine: Path) -> None:
    """Neither the server nor what it started, though its parent had no chance to end them, and the server does not end
    when all that its parent started is asked to."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    (machine / "vllm").write_text(VLLM.replace("import", f"{deaf}\nimport", 1))
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    code = (
        "import asyncio, os; from pathlib import Path\n"
        "from reasonrag.serving.local_server import served\n"
        "async def main():\n"
        "    async with served(Path(os.environ['FOLDER']), say=print): await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"FOLDER": str(model)}) as parent:
        until(lambda: len(processes_about(model)) > 1)
        subprocess.run(["pkill", "-TERM", "-P", str(parent.pid)], check=True)
        parent.kill()
    until(lambda: not processes_about(model))


async def test_why_vllm_does_not_start_is_said_though_a_long_traceback_comes_after_it(machine: Path) -> None:
    """As vLLM 0.25.1 says that the GPU is not free: the engine's process first, then that of the API. A process that
    holds its output open is not waited for."""
    why, then = (
        "(EngineCore pid=7) ValueError: Free memory on device",
        "(APIServer pid=1) RuntimeError: See root cause above",
    )
    (machine / "vllm").write_text(f"#!/bin/sh\nsleep 6000 & echo '{why}'; seq 60; echo '{then}'; exit 1\n")
    with pytest.raises(ReasonragError, match=r"ended with status 1\. Its last output:") as raised:
        async with served(folder(machine, "config.json", "tokenizer.json", "model.safetensors"), say=print):
            pass
    last = [*map(str, range(32, 61)), then, "Errors before that:", why]
    assert [line.strip() for line in str(raised.value).splitlines()[1:]] == last


async def test_a_server_that_dies_is_told_of_though_what_it_started_goes_on(machine: Path) -> None:
    """That has the server's output, too, and is ended."""
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")

    async def kill_and_wait() -> None:
        async with served(model, say=print):
            os.kill(os.getpgid(processes_about(model)[0]), signal.SIGKILL)
            await asyncio.sleep(6000)

    with pytest.raises(RunStopped, match="trained was killed by signal 9"):
        await kill_and_wait()
    until(lambda: not processes_about(model))


async def test_a_server_is_ended_though_a_fork_of_its_parent_goes_on(machine: Path) -> None:
    """Which has the pipe that the shell waits on."""
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(6000,), daemon=True)
    async with served(model, say=print):
        fork.start()
    assert fork.is_alive()
    fork.kill()
    until(lambda: not processes_about(model))


async def test_a_server_is_ended_also_by_its_parent(machine: Path) -> None:
    """Where the shell that should end it was killed."""
    model = folder(machine, "config.json", "tokenizer.json", "model.safetensors")
    async with served(model, say=print):
        assert len(processes_about(model)) > 1
        killed = subprocess.run(["pkill", "-KILL", "-x", "sh", "-P", str(os.getpid())], check=False)  # noqa: ASYNC221
        assert killed.returncode == 0
    until(lambda: not processes_about(model))
