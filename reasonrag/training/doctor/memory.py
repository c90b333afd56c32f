"""What a training takes of a GPU's memory, and of the host's: a plan before it is started.

An estimate from a model's shape and the training setup, as pure functions. It leaves out fragmentation (of a GPU no
more than `USABLE_SHARE` is planned with), assumes that every row is as long as `cutoff_len`, the worst that can
happen, and knows LLaMA-Factory 0.9.5's order of work, which decides what is held at once. Sources: states of the
model, 16 bytes a parameter in mixed precision with Adam, and how ZeRO divides them: arXiv 1910.02054, section 3.1 and
figure 1. QLoRA: arXiv 2305.14314, section 3. Activations: counted as PyTorch keeps them for Qwen2 of transformers 5.6
with SDPA; a test holds the count against the real thing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from reasonrag.training.model_shapes import ModelShape

GB: Final = 2**30
"""What an 80 GB card has 80 of, and what nvidia-smi counts in."""
USABLE_SHARE: Final = 0.94
"""Share of a GPU's memory that is planned with; the rest is lost between blocks."""
CUDA_OVERHEAD: Final = int(1.5 * GB)
"""CUDA's context, the libraries' workspaces and NCCL's buffers."""
ZERO3_LIVE_PARAMETERS: Final = 1_000_000_000
"""Gathered at once under ZeRO-3, and updated at once: DeepSpeed's stage3_max_live_parameters and sub_group_size."""
NF4_BYTES: Final = 0.5 + (8 + 32 / 256) / 64 / 8
"""Bytes of a weight in NF4 with double quantisation: 4 bits, and for each 64 weights a constant of 8 bits, for each 256
of those one of 32 (arXiv 2305.14314, section 3: 0.127 bits)."""
ADAM_STATE_BYTES: Final = 8
"""Bytes of a trained parameter's two moments, in fp32."""

Stage = Literal["sft", "dpo", "kto", "rm"]
Method = Literal["full", "lora", "qlora"]
Fit = Literal["fits", "fits with offload", "does not fit"]


class TrainingSetup(BaseModel):
    """What is done with a model, as far as memory asks. batch: rows (pairs) per GPU and forward pass."""

    model_config = ConfigDict(frozen=True)

    stage: Stage = "dpo"
    method: Method = "full"
    cutoff_len: int = Field(default=2048, gt=0)
    batch: int = Field(default=1, gt=0)
    gpus: int = Field(default=1, gt=0)
    zero: int = Field(default=0, ge=0, le=3)
    """Stage of DeepSpeed's ZeRO; 0 without DeepSpeed."""
    offload_optimizer: bool = False
    offload_parameters: bool = False
    bits: int = Field(default=4, ge=2, le=8)
    """Of a frozen weight of QLoRA."""
    lora_rank: int = Field(default=8, gt=0)
    lora_targets: tuple[str, ...] = ("all",)
    checkpointing: bool = True
    half: bool = True
    """bf16 or fp16."""
    liger: bool = False
    reference: bool = True
    """Whether the loss asks a reference; ORPO and SimPO do not."""

    @property
    def tokens(self) -> int:
        """In one forward pass: DPO and the reward model put both replies of a pair into it."""
        sides = 2 if self.stage in ("dpo", "rm") else 1
        return sides * self.batch * self.cutoff_len

    @property
    def offloads(self) -> bool:
        return self.offload_optimizer or self.offload_parameters

    @property
    def name(self) -> str:
        """`full, ZeRO-3, offloaded`."""
        words = [self.method, f"ZeRO-{self.zero}" if self.zero else "", "offloaded" if self.offloads else ""]
        return ", ".join(filter(None, words))


class MemoryPlan(BaseModel):
    """Bytes on each GPU, by what they are for, and on the host of each machine."""

    model_config = ConfigDict(frozen=True)

    training: TrainingSetup
    parameters: int
    trained: int
    weights: int
    reference: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    buffers: int
    """Weights that ZeRO-3 has gathered."""
    overhead: int = CUDA_OVERHEAD
    host: int

    @property
    def states(self) -> int:
        return self.weights + self.reference + self.gradients + self.optimizer

    @property
    def gpu(self) -> int:
        """At the worst moment."""
        return self.states + self.activations + self.logits + self.buffers + self.overhead

    def fits(self, gpu_memory: int) -> bool:
        """gpu_memory: bytes that each GPU has."""
        return self.gpu <= USABLE_SHARE * gpu_memory


def plan_memory(shape: ModelShape, training: TrainingSetup) -> MemoryPlan:
    """What a training of a model of this shape takes."""
    trained = trained_parameters(shape, training)
    weights, gradients, optimizer = _states(shape, training, trained)
    reference = _reference(shape, training)
    host = 0
    if training.offload_parameters:
        host += training.gpus * (weights + reference)
        weights = reference = 0
    if training.offload_optimizer:
        host += training.gpus * optimizer + 4 * trained  # DeepSpeed keeps gradients there in fp32
        optimizer = gradients = 0
    return MemoryPlan(
        training=training,
        parameters=shape.parameters,
        trained=trained,
        weights=weights,
        reference=reference,
        gradients=gradients,
        optimizer=optimizer,
        activations=activation_bytes(shape, training),
        logits=logits_bytes(shape, training),
        buffers=2 * min(shape.parameters, ZERO3_LIVE_PARAMETERS) if training.zero == 3 else 0,  # noqa: PLR2004 - its name
        host=host,
    )


def trained_parameters(shape: ModelShape, training: TrainingSetup) -> int:
    """All of them, or those of the adapter; a reward model has a head with one output more."""
    head = shape.hidden_size + 1 if training.stage == "rm" else 0
    if training.method == "full":
        return shape.parameters + head
    return shape.lora_parameters(training.lora_rank, training.lora_targets) + head


def _states(shape: ModelShape, training: TrainingSetup, trained: int) -> tuple[int, int, int]:
    """Weights, gradients and the optimizer's states, on each GPU.

    Without DeepSpeed LLaMA-Factory trains weights in fp32, of which autocast makes copies in half precision; DeepSpeed
    holds weights and gradients in half precision, and the weights in fp32 among the optimizer's states. Either way 16
    bytes for each that is trained, and the copies. ZeRO-1 divides the optimizer's states, 2 gradients too, 3 all.
    """
    half = 2 if training.half else 4
    frozen = 0.0 if training.method == "full" else _frozen(shape, training, half)
    if training.zero == 0:
        copies = 2 * trained if training.half else 0
        return int(frozen) + 4 * trained + copies, 4 * trained, ADAM_STATE_BYTES * trained
    weights = frozen + half * trained
    gradients: float = half * trained
    optimizer: float = (ADAM_STATE_BYTES + (4 if training.half else 0)) * trained
    optimizer /= training.gpus
    if training.zero >= 2:  # noqa: PLR2004 - its name
        gradients /= training.gpus
    if training.zero == 3:  # noqa: PLR2004 - its name
        weights /= training.gpus
    return int(weights), int(gradients), int(optimizer)


def _frozen(shape: ModelShape, training: TrainingSetup, half: int) -> float:
    """Weights that an adapter stands beside; QLoRA quantises the linear maps of the layers, not words and norms."""
    if training.method == "qlora":
        quantised = NF4_BYTES if training.bits == 4 else training.bits / 8  # noqa: PLR2004 - NF4
        return quantised * shape.linear_weights + half * (shape.parameters - shape.linear_weights)
    return half * shape.parameters


def _reference(shape: ModelShape, training: TrainingSetup) -> int:
    """A copy of the weights, where all of them are trained; beside an adapter the reference is the adapter taken off.
    TRL spreads it by ZeRO-3, and by no other stage."""
    if training.method != "full" or training.stage not in ("dpo", "kto") or not training.reference:
        return 0
    held = (2 if training.half else 4) * shape.parameters
    return held // training.gpus if training.zero == 3 else held  # noqa: PLR2004 - its name


def activation_bytes(shape: ModelShape, training: TrainingSetup) -> int:
    """What the backward pass needs of the forward pass. With checkpointing the input of every layer, and all of one
    layer, which is computed again; else all of every layer."""
    of_a_layer = activation_bytes_per_token(shape, training)
    kept = shape.num_hidden_layers * residual_bytes(training) * shape.hidden_size
    layers = 1 if training.checkpointing else shape.num_hidden_layers
    last_norm = 2 * residual_bytes(training) * shape.hidden_size
    return training.tokens * (layers * of_a_layer + (kept if training.checkpointing else 0) + last_norm)


def residual_bytes(training: TrainingSetup) -> int:
    """Bytes of a number that goes from layer to layer: 4 where weights are fp32, in full training without DeepSpeed."""
    return 2 if training.half and (training.zero or training.method != "full") else 4


def activation_bytes_per_token(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes that one layer keeps of a token.

    Two norms: their input in fp32 and what comes out, twice where weights are trained in half precision; the input of
    every linear map, which trained weights and adapters need (queries, keys and values share one, gate and up another);
    queries, keys and values as attention takes them and what it gives; and of the gated map its two halves, the
    activation and the product. SDPA keeps no scores.
    """
    half = 2 if training.half else 4
    hidden, inner = shape.hidden_size, shape.intermediate_size
    norms = 2 * hidden * (4 + half)
    linears = half * (hidden + hidden + hidden + inner)
    attention = half * (hidden + 2 * shape.key_value_size + hidden) + 4 * shape.num_attention_heads
    gated = half * 3 * inner
    return norms + linears + attention + gated


def logits_bytes(shape: ModelShape, training: TrainingSetup) -> int:
    """Scores of every word for every token, in fp32, as far as LLaMA-Factory holds them at once.

    dpo: while the reference is asked, scores and their logarithms of the model (4 + 4 bytes), and of the reference,
    whose scores are copied for it (4 + 4 + 4), of both replies; without one the model's logarithms, and three
    gradients (16). kto: the model's (8, and 4 for the copy that is split by label), and the reference's of the reply
    and of the unrelated one (4 + 8), with that copy where there are several rows. sft: scores in half precision (2),
    logarithms (4), gradients (4 + 2); none with Liger's fused loss. rm: scores in both precisions (2 + 4), though
    nobody asks.
    """
    held = {
        "dpo": 20 if training.reference else 16,
        "kto": 24 if training.batch == 1 else 28,
        "sft": 0 if training.liger else 12,
        "rm": 6,
    }
    return held[training.stage] * training.tokens * shape.vocab_size


def longest_cutoff(shape: ModelShape, training: TrainingSetup, gpu_memory: int) -> int:
    """The largest `cutoff_len` that fits, in steps of 64; 0 where none does. gpu_memory: bytes of each GPU."""
    low, high = 0, shape.max_position_embeddings // 64
    while low < high:
        middle = (low + high + 1) // 2
        tried = training.model_copy(update={"cutoff_len": 64 * middle})
        low, high = (middle, high) if plan_memory(shape, tried).fits(gpu_memory) else (low, middle - 1)
    return 64 * low


def fewest_gpus(shape: ModelShape, training: TrainingSetup, gpu_memory: int, *, most: int = 1024) -> int | None:
    """With how many GPUs it fits, none more than `most`; None where more do not help."""

    def fits(number: int) -> bool:
        return plan_memory(shape, training.model_copy(update={"gpus": number})).fits(gpu_memory)

    number = 1 + bisect_left(range(1, most + 1), 1, key=fits)  # more GPUs never make a plan larger
    return number if number <= most else None


def alternatives(training: TrainingSetup) -> list[TrainingSetup]:
    """Other ways to train the same rows, from the one that changes least of what is learned to the one that changes
    most: the method itself divided or offloaded, then LoRA, then QLoRA."""
    whole = training.model_copy(update={"zero": 0, "offload_optimizer": False, "offload_parameters": False})
    offloaded = {"zero": 3, "offload_optimizer": True, "offload_parameters": True}
    full = whole.model_copy(update={"method": "full"})
    lora = whole.model_copy(update={"method": "lora", "lora_rank": max(training.lora_rank, 64)})
    return [
        full,
        full.model_copy(update={"zero": 3}),
        full.model_copy(update=offloaded),
        lora,
        lora.model_copy(update={"zero": 3}),
        lora.model_copy(update={"method": "qlora"}),
    ]


def checkpoint_bytes(shape: ModelShape, training: TrainingSetup, *, with_optimizer: bool) -> int:
    """Of one checkpoint on the disk: weights in half precision, or the adapter in fp32; the optimizer's states beside
    them, with the weights in fp32 where DeepSpeed holds them there."""
    trained = trained_parameters(shape, training)
    of_weights = (4 if training.method != "full" or not training.half or not training.zero else 2) * trained
    of_optimizer = (ADAM_STATE_BYTES + (4 if training.zero and training.half else 0)) * trained
    return of_weights + (of_optimizer if with_optimizer else 0)
