"""The model that is evaluated: a name at an endpoint, the offline teacher, or the folder of a trained model.

Decides by what name the answers of a folder's model are known: another checkpoint in the same folder is another model.
Knows neither how it was trained (`provenance_check`) nor how a folder is served.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.servers.local_server import VllmOptions, served
from reasonrag.llm.servers.model_folder import ADAPTER_CONFIG, CONFIG, ModelFolder, open_model

_SMALL = (
    *(CONFIG, ADAPTER_CONFIG, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
"""Files that say, beside the weights, what a model answers."""
_BLOCK, _BLOCKS = 1 << 16, 64


@dataclass(frozen=True)
class EvaluatedModel:
    """The evaluated model. name: of its answers. folder: its own, where it is at hand. served_here: from that folder.

    base_model: what the adapter in the folder is an adapter of; None: what the folder says. vllm: how that serves it.
    known: whether there is anything to know of its training; the offline teacher had none.
    """

    name: str
    folder: Path | None = None
    served_here: bool = False
    base_model: str | None = None
    vllm: VllmOptions = field(default_factory=VllmOptions)
    known: bool = True


def fingerprint(model: ModelFolder, base_model: str | None = None) -> str:
    """Names a model's configuration, tokenizer and weights, in 12 hexadecimal digits, wherever the folder lies.

    base_model: of an adapter, whose answers are that model's, too: a folder, of which the same is read, or a name on
    the Hub. Of weights it reads names, sizes and blocks spread over each file: training moves all of them. Raises
    InputError for a base model in a folder that is no model.
    """
    digest = hashlib.sha256()
    if base_model is not None:
        folder = Path(base_model).expanduser()
        here = folder.exists() or folder.is_absolute()
        digest.update(f"{fingerprint(open_model(folder)) if here else base_model}\0".encode())
    for name in _SMALL:
        if (model.path / name).is_file():
            digest.update(f"{name}\0".encode() + (model.path / name).read_bytes() + b"\0")
    for name in sorted(model.weights):
        size = (model.path / name).stat().st_size
        digest.update(f"{name}\0{size}\0".encode())
        with (model.path / name).open("rb") as file:
            for block in range(_BLOCKS):
                file.seek(max(0, size - _BLOCK) * block // (_BLOCKS - 1))
                digest.update(file.read(_BLOCK))
                if size <= _BLOCK:
                    break
    return digest.hexdigest()[:12]


async def open_evaluated_model(
    subject: EvaluatedModel, spec: ModelSpec, opened: AsyncExitStack, *, say: Callable[[str], None]
) -> ChatModel:
    """The model itself; for a folder a server of it is started, which ends with `opened`."""
    if subject.served_here and subject.folder is not None:
        serving = served(subject.folder, say=say, base_model=subject.base_model, vllm=subject.vllm)
        server = await opened.enter_async_context(serving)
        spec = replace(spec, name=server.name, addresses=(server.base_url,))
    return spec.open(opened, say=say)
