"""Prompts by a model's own tokenizer and chat template, within limits of time and memory.

A chat template is a program that comes with the model: jinja's sandbox keeps it from files and the network, but not
from endless loops and strings. So a process of its own renders and tokenizes. Runs where the model is served; needs
transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from preference import Message
from reasonrag.errors import InputError
from reasonrag.model_folder import read_json
from reasonrag.processes.bounded import BoundedProcess, LimitError, StartError, WorkError
from reasonrag.processes.children import child_environment, hub_tokens

CPU_S = 2.0
"""CPU seconds per prompt: a thousand times what today's templates take for a full context."""
MEMORY_BYTES = 512 * 1024 * 1024
"""Address space beyond that of the loaded tokenizer."""
WAIT_S = 60.0
"""Wall-clock limit per prompt on a busy machine, or where CPU time cannot be limited (Windows)."""
_GENERIC_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Tokenizer classes that only read tokenizer.json."""
_HELLO = {"role": "user", "content": "hello"}


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
        self._excess = f"the chat template {self._file} takes more than {cpu_s:g} s or {MEMORY_BYTES >> 20} MiB"
        self._source = source
        environment = child_environment(*hub_tokens(source)) | {"TOKENIZERS_PARALLELISM": "false"}
        self._process = BoundedProcess(
            rendering, source, seconds=WAIT_S, memory_bytes=MEMORY_BYTES, cpu_s=cpu_s, environment=environment
        )

    async def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a chat, up to where the reply begins. Raises ValueError if the template refuses the messages or
        exceeds a limit."""
        try:
            return await self._rendered(messages)
        except LimitError as error:
            advice = "shorten them, or take the base model's template"
            raise ValueError(f"{self._excess} for these messages; {advice}") from error
        except StartError as error:
            raise ValueError(f"cannot load the tokenizer of {self._source}: {error}") from error
        except WorkError as error:
            raise ValueError(f"the chat template {self._file} refuses these messages: {error}") from error

    async def try_out(self) -> None:
        """Render a short message. Raises InputError if the tokenizer cannot be loaded or the template exceeds a limit,
        but not if it refuses the message."""
        try:
            await self._rendered([Message.model_validate(_HELLO)])
        except LimitError as error:
            raise InputError(f"{self._excess} for a message of one word; take the base model's template") from error
        except StartError as error:
            raise InputError(f"cannot load the tokenizer of {self._source}: {error}") from error
        except WorkError:
            pass

    async def _rendered(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(await self._process.reply([{"role": each.role, "content": each.content} for each in messages]))

    def close(self) -> None:
        self._process.close()


def rendering(source: str) -> Callable[[list[dict[str, str]]], list[int]]:
    """What makes the token ids of messages. In the process."""
    tokenizer = open_tokenizer(source)
    tokenizer.apply_chat_template([_HELLO], chat_template="hello", tokenize=False)  # imports what it needs
    asked = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    return lambda chat: list(tokenizer.apply_chat_template(chat, **asked))
