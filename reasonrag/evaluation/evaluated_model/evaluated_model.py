"""The model that is evaluated: a name at an endpoint, the offline teacher, or the folder of a trained model.

Decides which of them `--model` means, and by what name the answers of a folder's model are known: another checkpoint in
the same folder is another model. Knows neither how it was trained (`checks`) nor how a folder is served.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from reasonrag.agent.from_settings import model_name, teacher_spec
from reasonrag.errors import InputError
from reasonrag.evaluation.settings import ModelSettings
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.llm.servers.model_folder import ADAPTER_CONFIG, CONFIG, ModelFolder, open_model
from reasonrag.training.provenance import find_provenance

_SMALL = (
    *(CONFIG, ADAPTER_CONFIG, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
"""Files that say, beside the weights, what a model answers."""
_BLOCK, _BLOCKS = 1 << 16, 64


@dataclass(frozen=True)
class EvaluatedModel:
    """The evaluated model. name: of its answers. folder: its own, where it is at hand. served_here: from that folder.

    base_model: what the adapter in the folder is an adapter of; None: what the folder says. known: whether there is
    anything to know of its training; the offline teacher had none.
    """

    name: str
    folder: Path | None = None
    served_here: bool = False
    base_model: str | None = None
    known: bool = True


def find_evaluated_model(settings: ModelSettings, chat_model: ChatModel | None = None) -> EvaluatedModel:
    """What --model means. Raises InputError for a path that is no model's folder, and for a --base-model of no
    adapter."""
    found = _found(settings, chat_model)
    if settings.base_model and not (found.served_here and found.folder and open_model(found.folder).is_adapter):
        raise InputError(
            f"--base-model {settings.base_model}: that is for an adapter's folder, and --model is none; leave it out"
        )
    return found


def _found(settings: ModelSettings, chat_model: ChatModel | None) -> EvaluatedModel:
    if chat_model is not None:
        return EvaluatedModel(chat_model.name, known=chat_model.name != OFFLINE)
    name = model_name(settings)
    if name == OFFLINE and not settings.base_url:
        return EvaluatedModel(name, known=False)
    folder = Path(name).expanduser()
    if settings.base_url:  # there it is a name, whatever it looks like; servers often name a model by its folder
        return EvaluatedModel(name, folder if find_provenance(folder) else None)
    if folder.exists():
        found = open_model(folder)
        base = settings.base_model or found.base_model
        if found.is_adapter and base is None:
            raise InputError(f"{folder} is an adapter that does not name its base model; give --base-model")
        return EvaluatedModel(
            f"{found.name}@{fingerprint(found, base)}", folder, served_here=True, base_model=settings.base_model
        )
    if name.startswith((".", "~", os.sep)) or (os.sep in name and not os.environ.get("OPENAI_BASE_URL")):
        raise InputError(
            f"--model {name}: there is no such folder here. Check the path; or, if that is the name of a model on a "
            "server, give its --base-url"
        )
    return EvaluatedModel(name)


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


def evaluated_spec(subject: EvaluatedModel, settings: ModelSettings) -> ModelSpec:
    """How it is asked and sampled, and what its tokens cost; those of a server of our own nothing."""
    spec = teacher_spec(settings, subject.name)
    free = subject.served_here and settings.price_in is None and settings.price_out is None
    limits = replace(spec.limits, patience=settings.patience)
    return replace(spec, limits=limits, price=SELF_HOSTED if free else spec.price)


async def open_evaluated_model(
    subject: EvaluatedModel, spec: ModelSpec, opened: AsyncExitStack, *, say: Callable[[str], None]
) -> ChatModel:
    """The model itself; for a folder a server of it is started, which ends with `opened`."""
    if subject.served_here and subject.folder is not None:
        from reasonrag.evaluation.evaluated_model.local_server import served

        server = await opened.enter_async_context(served(subject.folder, say=say, base_model=subject.base_model))
        spec = replace(spec, name=server.name, addresses=(server.base_url,))
    return spec.open(opened)
