"""The model that is evaluated: a name at an endpoint, the offline teacher, or the folder of a trained model.

Decides by what name the answers of a folder's model are known: another checkpoint in the same folder is another model.
Knows neither how it was trained (`provenance_check`) nor how a folder is served.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.serving.local_server import VllmOptions, served


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


async def open_evaluated_model(
    subject: EvaluatedModel, spec: ModelSpec, opened: AsyncExitStack, *, say: Callable[[str], None]
) -> ChatModel:
    """The model itself; for a folder a server of it is started, which ends with `opened`."""
    if subject.served_here and subject.folder is not None:
        serving = served(subject.folder, say=say, base_model=subject.base_model, vllm=subject.vllm)
        server = await opened.enter_async_context(serving)
        spec = replace(spec, name=server.name, addresses=(server.base_url,))
    return spec.open(opened, say=say)
