"""Prompts by a model's own tokenizer and chat template, within limits of time and memory.

A chat template is a program that comes with the model: jinja's sandbox keeps it from files and the network, but not
from endless loops and strings. So a separate process renders and tokenizes, and is ended if it exceeds a limit; the
next prompt starts another. Runs where the model is served; needs transformers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from preference import Message
from reasonrag.errors import InputError
from reasonrag.model_folder import read_json
from reasonrag.redaction import child_environment, hub_tokens

CPU_S = 2.0
"""CPU seconds per prompt: a thousand times what today's templates take for a full context."""
MEMORY_BYTES = 512 * 1024 * 1024
"""Address space beyond that of the loaded tokenizer."""
WAIT_S = 60.0
"""Wall-clock limit per prompt on a busy machine, or where CPU time cannot be limited (Windows)."""
LOAD_S = 300.0
"""For the tokenizer, from a slow disk."""
_MOST_ANSWER_BYTES = 1 << 26
"""Beyond the token ids of the longest body that the server takes."""
_GENERIC_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Tokenizer classes that only read tokenizer.json."""
_HELLO = {"role": "user", "content": "hello"}
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reasonrag.serving.chat_template import main; main()"


def open_tokenizer(source: str | Path) -> Any:
    """The tokenizer as its files define it. `AutoTokenizer` differs by version: since some 5.x it replaces the rules of
    a Qwen2 model's tokenizer.json by Qwen2's own, and its words become unknown."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    declared = Path(source) / "tokenizer_config.json"
    if declared.is_file() and read_json(declared).get("tokenizer_class") in _GENERIC_TOKENIZERS:
        return PreTrainedTokenizerFast.from_pretrained(source)
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False)


class ChatTemplate:
    """The chat template and the tokenizer of a folder, or of a model on the Hub."""

    def __init__(self, source: str, *, cpu_s: float = CPU_S) -> None:
        files = [Path(source) / each for each in ("chat_template.jinja", "tokenizer_config.json")]
        self._file = next((str(each) for each in files if each.is_file()), f"of {source}")
        self._source, self._cpu_s = source, cpu_s
        self._excess = f"the chat template {self._file} takes more than {cpu_s:g} s or {MEMORY_BYTES >> 20} MiB"
        self._process: Process | None = None
        self._free = asyncio.Lock()

    async def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a chat, up to where the reply begins. Raises ValueError if the template refuses the messages or
        exceeds a limit."""
        answer = await self._rendered(messages)
        if answer is None:
            raise ValueError(f"{self._excess} for these messages; shorten them, or take the base model's template")
        if "refused" in answer:
            raise ValueError(f"the chat template {self._file} refuses these messages: {answer['refused']}")
        return tuple(answer["ids"])

    async def try_out(self) -> None:
        """Render a short message. Raises InputError if the template cannot be loaded or exceeds a limit, but not if it
        refuses the message."""
        if await self._rendered([Message.model_validate(_HELLO)]) is None:
            raise InputError(f"{self._excess} for a message of one word; take the base model's template")

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)  # Process.kill polls, which takes the status from wait
            await process.wait()

    async def _rendered(self, messages: Sequence[Message]) -> dict[str, Any] | None:
        sent = [{"role": each.role, "content": each.content} for each in messages]
        async with self._free:
            process = self._process or await self._started()
            cast("asyncio.StreamWriter", process.stdin).write(json.dumps(sent).encode() + b"\n")
            return await self._answer(process, WAIT_S)

    async def _started(self) -> Process:
        """Start a process and load the tokenizer. Raises InputError if that fails."""
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _BOOT, str(Path(__file__).parents[2]), self._source, str(self._cpu_s)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=_MOST_ANSWER_BYTES,
            env=child_environment(*hub_tokens(self._source)) | {"TOKENIZERS_PARALLELISM": "false"},
        )
        answer = await self._answer(process, LOAD_S) or {"refused": "its process ended"}
        if "refused" in answer:
            await self.close()
            raise InputError(f"cannot load the tokenizer of {self._source}: {answer['refused']}")
        return process

    async def _answer(self, process: Process, seconds: float) -> dict[str, Any] | None:
        """What the process says next; None if it exceeded a limit, after which it may have ended."""
        try:
            async with asyncio.timeout(seconds):
                line = await cast("asyncio.StreamReader", process.stdout).readline()
            answer: dict[str, Any] | None = json.loads(line)
        except (TimeoutError, ValueError):
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()  # its late answer must not reach another request
            raise
        return answer


# -- the process -------------------------------------------------------------------------------------------------


def main() -> None:
    """Loads the tokenizer that it is given, then reads a line with messages for each prompt, until stdin ends. Answers
    each with a line: token ids, why there are none, or null if they took too much memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the server
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    source, cpu_s = sys.argv[1], float(sys.argv[2])
    tokenizer = None
    for line in itertools.chain([""], sys.stdin):
        answer: dict[str, Any] | None = {"ids": []}
        try:
            if tokenizer is None:
                tokenizer = open_tokenizer(source)
                tokenizer.apply_chat_template([_HELLO], chat_template="hello", tokenize=False)  # imports what it needs
                _limit_memory()
            else:
                _limit_time(cpu_s)
                chat = json.loads(line)
                ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
                answer = {"ids": list(ids)}
        except MemoryError:
            answer = None
        except Exception as error:  # noqa: BLE001 - any exception of a template is a refusal
            answer = {"refused": f"{type(error).__name__}: {error}"[:500]}
        _limit_time(0)
        print(json.dumps(answer), file=answers, flush=True)


def _limit_time(seconds: float) -> None:
    """End this process by SIGPROF after so many CPU seconds; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows; macOS; a lower limit holds already
        import resource

        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
