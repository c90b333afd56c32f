"""A model's folder, served while it is needed: `async with served(folder, say=..) as server`.

Decides which server runs (vLLM if there is a GPU, else `server` in the first environment that has torch
and transformers), waits until it answers, and always ends it, through a `watchdog` in case this process is killed.
Loads no model itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import cast

from reasonrag.errors import InputError, ReasonragError, RunStopped
from reasonrag.model_folder import ModelFolder, open_model
from reasonrag.redaction import child_environment, excerpt, hub_tokens, redact
from reasonrag.serving import watchdog
from reasonrag.serving.python import PYTHON_VARIABLE, find_python
from reasonrag.terminal import shown
from reasonrag.web.client import LOOPBACK

_VLLM = "vllm"
SHARE_BESIDE = 0.45
"""Of a GPU's memory for each of two servers; vLLM takes .9 by default, and the second would not start."""
START_S = 1800.0
"""For a model to be loaded: a 7B from a slow network disk takes minutes, and vLLM compiles after that."""
REPORT_S = 20.0
"""While it loads, a line so often."""
_ASK_S = 0.2
_LINES = 30
"""Last output of the server, shown if it fails."""
_LISTENS = re.compile(r"serving at (http://\S+)/v1 ")
_PACKAGES = ("torch", "transformers", "aiohttp", "orjson", "pydantic")
"""What serving here takes; peft besides for an adapter."""
_BOOT = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "  # behind the environment's own packages
    "runpy.run_module('reasonrag.serving', run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True)
class VllmOptions:
    """What vLLM is told, where it is what serves.

    tensor_parallel: GPUs among which the weights are divided; None: one, as others may use the rest. max_model_len:
    tokens of prompt and reply; None: the model's own. vLLM takes the same share of a GPU's memory either way, and with
    fewer it refuses longer prompts; but it does not start where its cache cannot hold one sequence of that length.
    beside: whether another server of ours has the same GPU, so that each takes SHARE_BESIDE of its memory.
    """

    tensor_parallel: int | None = None
    max_model_len: int | None = None
    beside: bool = False

    @property
    def words(self) -> list[str]:
        """For `vllm serve`."""
        told = {"--tensor-parallel-size": self.tensor_parallel, "--max-model-len": self.max_model_len}
        return [word for flag, value in told.items() if value is not None for word in (flag, str(value))]


@dataclass(frozen=True)
class LocalServer:
    """A server that runs. name: what it calls its model."""

    base_url: str
    name: str


@dataclass(frozen=True)
class _ServerCommand:
    """How a server is started. address: `http://host:port`; None where it says itself where it listens."""

    command: list[str]
    address: str | None
    who: str


@asynccontextmanager
async def served(
    folder: Path,
    *,
    say: Callable[[str], None],
    base_model: str | None = None,
    vllm: VllmOptions = VllmOptions(),
) -> AsyncIterator[LocalServer]:
    """A server of the model, from when it answers until the block ends. base_model: for an adapter, instead of the
    base model that it names. say: is told of progress. vllm: has no effect on the other server, which says so.

    Of a critic it serves scores, at `/pooling`. Where the server dies inside the block, the block is cancelled and
    RunStopped says what its last words were.
    Raises InputError for a folder that is no model, where no environment can serve it, and for more GPUs than there
    are.
    """
    model = open_model(folder)
    plan = _choose_server(model, base_model, vllm)
    say(f"loading {model.path} with {plan.who}")
    if vllm.words and plan.who != _VLLM:
        say(f"{' '.join(vllm.words)} is for vLLM, which does not serve here: left out")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        watchdog.__file__,
        *plan.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
        start_new_session=True,  # Ctrl-C is for this process, which then ends that one
        env=child_environment(*hub_tokens(base_model or model.base_model)) | {"PYTHONUNBUFFERED": "1"},
    )
    running = _Running(model.name, process, plan.address)
    reading = asyncio.create_task(running.read())
    try:
        address = await running.started(say)
        async with _watched(running, reading):
            yield LocalServer(f"{address}/v1", model.name)
    finally:
        await _end(process, reading)


def _choose_server(model: ModelFolder, base_model: str | None, options: VllmOptions) -> _ServerCommand:
    """Raises InputError if nothing here can serve the model."""
    vllm = shutil.which("vllm")
    if vllm and (gpus := count_gpus()):
        wanted = options.tensor_parallel or 1
        if wanted > gpus:
            raise InputError(f"--tensor-parallel {wanted}: vLLM would see {gpus} GPU{'s' * (gpus > 1)} here, no more")
        return _with_vllm(vllm, model, base_model, options)
    python, who = _python([*_PACKAGES, *(["peft"] if model.is_adapter else [])])
    root = str(Path(__file__).parents[2])
    command = [str(python), "-c", _BOOT, root, str(model.path.absolute()), "--name", model.name]
    return _ServerCommand([*command, *(["--base", base_model] if base_model else [])], None, who)


def _with_vllm(vllm: str, model: ModelFolder, base_model: str | None, options: VllmOptions) -> _ServerCommand:
    port = _free_port()
    runner = ["--runner", "pooling"] if model.is_classifier else []
    share = ["--gpu-memory-utilization", str(SHARE_BESIDE)] if options.beside else []
    listening = ["--host", LOOPBACK, "--port", str(port), *options.words, *share, *runner]
    path, address = str(model.path.absolute()), f"http://{LOOPBACK}:{port}"
    if not model.is_adapter:
        return _ServerCommand([vllm, "serve", path, "--served-model-name", model.name, *listening], address, _VLLM)
    base = base_model or model.base_model
    if base is None:
        raise InputError(f"{model.path} is an adapter that does not name its base model; say which it is")
    adapter = ["--enable-lora", "--max-lora-rank", "256", "--lora-modules", f"{model.name}={path}"]
    return _ServerCommand([vllm, "serve", base, *adapter, *listening], address, _VLLM)


def count_gpus() -> int:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES does not hide."""
    smi, visible = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if smi is None or visible == "":
        return 0
    found = subprocess.run([smi, "--list-gpus"], capture_output=True, text=True, check=False)
    here = sum(line.startswith("GPU") for line in found.stdout.splitlines()) if found.returncode == 0 else 0
    return here if visible is None else min(here, len(visible.split(",")))


def _free_port() -> int:
    with socket.socket() as place:
        place.bind((LOOPBACK, 0))
        return int(place.getsockname()[1])


def _python(needed: Sequence[str]) -> tuple[Path, str]:
    """An interpreter that has these packages, and what to call it. Raises InputError where there is none."""
    here = Path(sys.executable)
    if not (missing := _missing(here, needed)):
        return here, "this environment's transformers"
    advice = (
        f"make train-env in the checkout builds an environment that can, {PYTHON_VARIABLE} names one, or install vllm "
        "where there is a GPU. For a server that is already running, give --base-url instead"
    )
    try:
        other = find_python()
    except InputError:
        raise InputError(
            f"nothing here can serve a model: {here} has no {' and no '.join(missing)}, and there is no training "
            f"environment; {advice}"
        ) from None
    if missing := _missing(other, needed):
        raise InputError(f"{other} cannot serve a model: it has no {' and no '.join(missing)}; {advice}")
    return other, f"the transformers of {other}"


def _missing(python: Path, needed: Sequence[str]) -> list[str]:
    code = f"import importlib.util as u; print(*[n for n in {list(needed)!r} if u.find_spec(n) is None])"
    done = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=False, timeout=60, env=child_environment()
    )
    if done.returncode:
        raise InputError(f"cannot run {python}: {excerpt(done.stderr.strip(), -300)}")
    return done.stdout.split()


# -- from start to end -------------------------------------------------------------------------------------------


class _Running:
    """A server's process, where it listens once that is known, and its last words."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, address: str | None) -> None:
        self._name, self._process, self._address = name, process, address
        self._last: deque[str] = deque(maxlen=_LINES)

    async def read(self) -> None:
        """Keep its last words, and note where it listens; ends when it does."""
        output = cast("asyncio.StreamReader", self._process.stdout)
        while line := await output.readline():
            text = shown(redact(line.decode("utf-8", "replace").rstrip().rpartition("\r")[2]))
            if text:
                self._last.append(text)
            if found := _LISTENS.match(text):
                self._address = found[1]
        await self._process.wait()

    async def started(self, say: Callable[[str], None]) -> str:
        """The address once it answers. Raises ReasonragError where it ends before, or takes too long."""
        began = reported = time.monotonic()
        while not (self._address and await _is_healthy(self._address)):
            if self._process.returncode is not None:
                raise ReasonragError(self.death())
            now = time.monotonic()
            if now - began > START_S:
                raise ReasonragError(f"{self._name} does not answer after {START_S / 60:.0f} minutes. {self._words}")
            if now - reported > REPORT_S:
                reported = now
                say(f"still loading after {now - began:.0f} s: {self._last[-1] if self._last else 'no output yet'}")
            await asyncio.sleep(_ASK_S)
        say(f"{self._name} is served at {self._address}/v1 after {time.monotonic() - began:.0f} s")
        return self._address

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    def death(self, remedy: str = "") -> str:
        """How it ended, with its last words."""
        status = self._process.returncode or 0
        how = f"was killed by signal {status - 128}" if status > 128 else f"ended with status {status}"  # noqa: PLR2004
        return f"the server of {self._name} {how}{remedy}. {self._words}"

    @property
    def _words(self) -> str:
        words = "\n".join(f"  {each}" for each in self._last)
        return f"Its last output:\n{words}" if words else "It printed nothing"


async def _is_healthy(address: str) -> bool:
    from aiohttp import ClientError, ClientSession, ClientTimeout

    try:
        async with ClientSession(timeout=ClientTimeout(total=10)) as client, client.get(f"{address}/health") as answer:
            return answer.status == HTTPStatus.OK
    except (ClientError, OSError, TimeoutError):
        return False


@asynccontextmanager
async def _watched(running: _Running, reading: asyncio.Task[None]) -> AsyncIterator[None]:
    """Cancel the block when the server dies, and say so in its place."""
    task = cast("asyncio.Task[object]", asyncio.current_task())

    def end_block(_: object) -> None:
        task.cancel()

    reading.add_done_callback(end_block)
    try:
        yield
    except (asyncio.CancelledError, Exception) as error:
        if not running.ended:
            raise
        if isinstance(error, asyncio.CancelledError):
            task.uncancel()
        raise RunStopped(running.death(". The same command starts it again")) from error
    finally:
        reading.remove_done_callback(end_block)


async def _end(process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
    """End the server and wait for it; the watchdog does so when its stdin closes."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(watchdog.GRACE_S + 5):
            await asyncio.shield(process.wait())
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
