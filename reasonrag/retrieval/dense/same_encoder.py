"""Whether an encoder is the one an index was built with: the vector of a probe tells, whatever its name.

Decides what agrees, and which encoder an index opens for queries. Knows no passages and searches nothing.
"""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.encoders import PROBE, Encoder, EncoderChoice, load_encoder
from reasonrag.retrieval.dense.manifest import DenseManifest

AGREES = 0.99
"""Lowest cosine between the recorded and the new probe: bf16 gives .998; another pooling, instruction or model far
less."""


def check_encoder(directory: Path, manifest: DenseManifest, encoder: Encoder) -> None:
    """Raises InputError if the encoder is not the index's, whatever its name: the probe's vector tells."""
    alike = probe_similarity(manifest.probe, encoder)
    if alike < AGREES:
        raise InputError(
            f"the encoder {encoder.spec.model} is not the one {directory} was built with: the same query gets another "
            f"vector (cosine {alike:.3f}). Use --encoder {manifest.encoder.model}"
        )


def open_encoder(manifest: DenseManifest, choice: EncoderChoice | None = None) -> Encoder:
    """The query encoder of an index: its own, or the chosen one with the index's settings."""
    wanted = manifest.encoder.choice
    if choice is not None:
        given = choice.model_dump(exclude_none=True)
        wanted = wanted.model_copy(update=given | {"backend": choice.backend or wanted.backend})
    return load_encoder(wanted, precision="fp32", alone=True)


def encoded_probe(encoder: Encoder) -> str:
    """The query vector of `PROBE`, in the manifest's encoding."""
    return base64.b64encode(encoder.queries([PROBE])[0].astype(np.float16).tobytes()).decode()


def probe_similarity(probe: str, encoder: Encoder) -> float:
    """Cosine of a recorded probe and the encoder's vector for it now; 0 if the dimensions differ."""
    recorded = np.frombuffer(base64.b64decode(probe), dtype=np.float16).astype(np.float32)
    if len(recorded) != encoder.spec.dimension:
        return 0.0
    return float(cosines(encoder.queries([PROBE]), recorded[None])[0])


def cosines(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray((ours * theirs).sum(axis=1) / np.where(norms, norms, 1))


def first_difference(before: BaseModel, now: BaseModel) -> str:
    """The first field that differs, and how."""
    was, is_now = before.model_dump(), now.model_dump()
    for name, value in was.items():
        if isinstance(value, dict) and value != is_now[name]:
            return first_difference(getattr(before, name), getattr(now, name))
        if value != is_now[name]:
            return f"{name}: {value!r} there, {is_now[name]!r} now"
    return "nothing differs"
