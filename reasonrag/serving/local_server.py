"""A model's folder, served while it is needed: `async with served(folder, say=..) as server`.

Decides which server runs (vLLM if there is a GPU, else `server` in this environment or LLaMA-Factory's), waits until it
answers, and always ends it, also if this process is killed. Loads no model itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import cast

from reasonrag.errors import InputError, ReasonragError, RunStopped
from reasonrag.model_folder import ModelFolder, open_model
from reasonrag.processes.children import child_environment, find_python, hub_tokens
from reasonrag.redaction import redact
from reasonrag.terminal import shown
from reasonrag.web.client import LOOPBACK

_VLLM = "vllm"
SHARE_BESIDE = 0.45
"""Of a GPU's memory for each of two servers; vLLM takes .9 by default, and the second would not start."""
START_S = 1800.0
"""For a model to be loaded: a 7B from a slow network disk takes minutes, and vLLM compiles after that."""
REPORT_S = 20.0
"""While it loads, a line so often."""
GRACE_S = 5
"""For a server and all that it started to end by themselves; they are killed after that."""
_ASK_S = 0.2
_LINES = 30
_ERRORS = 5
"""Last output of the server, and errors before that, shown if it fails."""
_ERROR = re.compile(r"\b\w*(Error|Exception): \S")
"""In what vLLM's engine says of why it fails; its API's traceback, longer than the last output, comes after that."""
_LISTENS = re.compile(r"serving at (http://\S+)/v1 ")
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reasonrag.serving.server import main; sys.exit(main())"
"""Our own modules come behind those of the interpreter's environment."""
_LIFE_LINE = f"""
trap '' TERM INT HUP
read server || exit
cat
kill -TERM -"$server"
tenths=0
while kill -0 -"$server" && [ "$tenths" -lt {GRACE_S}0 ]; do
    if sleep .1; then tenths=$((tenths + 1)); else sleep 1; tenths=$((tenths + 10)); fi
done
kill -KILL -"$server"
"""
"""For a shell of its own, which learns the server's process group from its stdin, and ends the group when stdin closes:
a killed process cannot end its children, but its end of a pipe closes anyway. A signal to all processes of ours at once
does not end it. POSIX has neither `seq` nor parts of a second."""


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
    RunStopped says its last words. Raises InputError for a folder that is no model, where no environment can serve it,
    and for more GPUs than there are.
    """
    model = open_model(folder)
    base_model = base_model or model.base_model
    if model.is_adapter and base_model is None:
        raise InputError(f"{model.path} is an adapter that does not name its base model; say which it is")
    who, command, address = _choose_server(model, base_model, vllm)
    say(f"loading {model.path} with {who}")
    if vllm.words and who != _VLLM:
        say(f"{' '.join(vllm.words)} is for vLLM, which does not serve here: left out")
    environment = child_environment(*hub_tokens(base_model)) | {"PYTHONUNBUFFERED": "1"}
    running = _Running(model.name, asyncio.create_task(_start(command, environment)), address)
    try:
        address = await running.started(say)
        async with running.watched():
            yield LocalServer(f"{address}/v1", model.name)
    finally:
        await running.end()


def _choose_server(
    model: ModelFolder, base_model: str | None, options: VllmOptions
) -> tuple[str, list[str], str | None]:
    """Who serves the model, its command, and its address, `http://host:port`; None where it says itself where it
    listens. Raises InputError if nothing here can."""
    path, vllm, gpus = str(model.path.absolute()), shutil.which(_VLLM), count_gpus()
    if not (vllm and gpus):
        python, root = _python(model), str(Path(__file__).parents[2])
        base = ["--base", base_model] if base_model else []
        return f"the transformers of {python}", [str(python), "-c", _BOOT, root, path, *base], None
    if (wanted := options.tensor_parallel or 1) > gpus:
        raise InputError(f"--tensor-parallel {wanted}: vLLM would see {gpus} GPU{'s' * (gpus > 1)} here, no more")
    if model.is_adapter and base_model:
        what = [base_model, "--enable-lora", "--max-lora-rank", "256", "--lora-modules", f"{model.name}={path}"]
    else:
        what = [path, "--served-model-name", model.name]
    with socket.socket() as place:
        place.bind((LOOPBACK, 0))
        port = place.getsockname()[1]
    share = ["--gpu-memory-utilization", str(SHARE_BESIDE)] if options.beside else []
    runner = ["--runner", "pooling"] if model.is_classifier else []
    own = ["--generation-config", "vllm"]  # a model's own top_k or penalty would change what it says at temperature 1
    listening = ["--host", LOOPBACK, "--port", str(port), *own]
    return _VLLM, [vllm, "serve", *what, *listening, *options.words, *share, *runner], f"http://{LOOPBACK}:{port}"


def count_gpus() -> int:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES does not hide."""
    here, visible = len(driver_gpus()), os.environ.get("CUDA_VISIBLE_DEVICES")
    shown = takewhile(lambda each: each.strip() not in ("", "-1"), (visible or "").split(","))  # as CUDA reads it
    return here if visible is None else min(here, len(list(shown)))


def driver_gpus() -> list[str]:
    """The names of all GPUs of this machine; none without a driver."""
    if (smi := shutil.which("nvidia-smi")) is None:
        return []
    found = subprocess.run([smi, "--list-gpus"], capture_output=True, text=True, check=False)
    named = [line.partition(": ")[2] for line in found.stdout.splitlines() if line.startswith("GPU")]
    return [each.partition(" (UUID")[0] for each in named] if found.returncode == 0 else []


def _python(model: ModelFolder) -> Path:
    """This interpreter if it can load the model, else LLaMA-Factory's. Raises InputError where there is none."""
    needed = ["torch", "transformers", *(["peft"] if model.is_adapter else [])]
    if not (missing := [each for each in needed if find_spec(each) is None]):
        return Path(sys.executable)
    try:
        return find_python()
    except InputError as error:
        raise InputError(
            f"nothing here can serve a model: {sys.executable} has no {' and no '.join(missing)}. {error}; or install "
            "vllm where there is a GPU. For a server that is already running, give --base-url instead"
        ) from None


# -- from start to end -------------------------------------------------------------------------------------------


async def _start(command: list[str], environment: dict[str, str]) -> tuple[Process, Process]:
    """The server, and the shell that ends it. Each is in a session of its own: Ctrl-C is for this process, which then
    ends them. The server waits until the shell knows it."""
    start = partial(asyncio.create_subprocess_exec, "sh", "-c", stdin=PIPE, start_new_session=True, env=environment)
    life_line = await start(_LIFE_LINE, stdout=DEVNULL, stderr=DEVNULL)
    server = await start('read go && exec "$@" </dev/null', "sh", *command, stdout=PIPE, stderr=STDOUT, limit=1 << 20)
    for process, said in ((life_line, b"%d\n" % server.pid), (server, b"\n")):
        cast("asyncio.StreamWriter", process.stdin).write(said)
    return server, life_line


class _Running:
    """A server's process, where it listens once that is known, and its last words. starting: a task of its own, since
    asyncio may wait for ever where the start of a process is cancelled."""

    def __init__(self, name: str, starting: asyncio.Task[tuple[Process, Process]], address: str | None) -> None:
        self._name, self._starting, self._address = name, starting, address
        self._last: deque[str] = deque(maxlen=_LINES)
        self._errors: deque[str] = deque(maxlen=_ERRORS)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Ends when the server does, and kills what it leaves, which may hold what `process.wait` waits for."""
        process, _ = await asyncio.shield(self._starting)
        noting = asyncio.create_task(self._note(cast("asyncio.StreamReader", process.stdout)))
        while process.returncode is None:  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(_ASK_S)
        _kill(process)
        await asyncio.wait([noting], timeout=GRACE_S)
        noting.cancel()

    async def _note(self, output: asyncio.StreamReader) -> None:
        """Keep its last words, and where it listens. A line that is too long is left out."""
        while not output.at_eof():
            try:
                line = await output.readline()
            except ValueError:
                continue
            text = shown(redact(line.decode("utf-8", "replace").rstrip().rpartition("\r")[2]))
            if text:
                self._last.append(text)
            if _ERROR.search(text):
                self._errors.append(text)
            if found := _LISTENS.match(text):
                self._address = found[1]

    async def started(self, say: Callable[[str], None]) -> str:
        """The address once it answers. Raises ReasonragError where it ends before, or takes too long."""
        began = reported = time.monotonic()
        while not (self._address and await _is_healthy(self._address)):
            if self._reading.done():
                raise ReasonragError(self._death())
            now = time.monotonic()
            if now - began > START_S:
                raise ReasonragError(f"{self._name} does not answer after {START_S / 60:.0f} minutes. {self._words()}")
            if now - reported > REPORT_S:
                reported = now
                say(f"still loading after {now - began:.0f} s: {self._last[-1] if self._last else 'no output yet'}")
            await asyncio.sleep(_ASK_S)
        say(f"{self._name} is served at {self._address}/v1 after {time.monotonic() - began:.0f} s")
        return self._address

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Cancel the block when the server dies, and say so in its place."""
        task = cast("asyncio.Task[object]", asyncio.current_task())

        def end_block(_: object) -> None:
            task.cancel()

        self._reading.add_done_callback(end_block)
        try:
            yield
        except (asyncio.CancelledError, Exception) as error:
            if not self._reading.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                task.uncancel()
            raise RunStopped(self._death(". The same command starts it again")) from error
        finally:
            self._reading.remove_done_callback(end_block)

    async def end(self) -> None:
        """End it, and wait until all that it said is read, but not for ever."""
        process, life_line = await self._starting
        cast("asyncio.StreamWriter", life_line.stdin).close()
        with contextlib.suppress(TimeoutError):  # a fork of this process has that end of the pipe, too
            await asyncio.wait_for(life_line.wait(), GRACE_S + 5)
        _kill(life_line)
        _kill(process)  # if the shell did not
        await asyncio.wait([self._reading], timeout=GRACE_S)

    def _death(self, remedy: str = "") -> str:
        """How it ended, with its last words."""
        status = self._starting.result()[0].returncode or 0
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the server of {self._name} {how}{remedy}. {self._words()}"

    def _words(self) -> str:
        errors = [each for each in self._errors if each not in self._last]
        parts = {"Its last output:": self._last, "Errors before that:": errors}
        words = [word for part, lines in parts.items() if lines for word in (part, *(f"  {each}" for each in lines))]
        return "\n".join(words) or "It printed nothing"


def _kill(process: Process) -> None:
    """With all that is left of its session."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


async def _is_healthy(address: str) -> bool:
    from aiohttp import ClientError, ClientSession, ClientTimeout

    try:
        async with ClientSession(timeout=ClientTimeout(total=10)) as client, client.get(f"{address}/health") as answer:
            return answer.status == HTTPStatus.OK
    except (ClientError, OSError, TimeoutError):
        return False
