"""How much GPU and host memory a training takes, estimated before it is started.

An estimate from a model's shape and the training setup, as pure functions. It leaves out fragmentation (of a GPU no
more than `USABLE_SHARE` is planned with), assumes that every row is as long as `cutoff_len`, the worst that can
happen, and knows LLaMA-Factory 0.9.5's order of work, which decides what is held at once. Sources: states of the
model, 16 bytes a parameter in mixed precision with Adam, and how ZeRO divides them: arXiv 1910.02054, section 3.1 and
figure 1. QLoRA: arXiv 2305.14314, section 3. Activations: counted as PyTorch keeps them for Qwen2 of transformers 5.6
with SDPA; a test holds the count against the real thing.
"""

from __future__ import annotations

from bisect import bisect
from typing import Final, Literal

from pydantic import BaseModel, Field

from reasonrag.llm.settings import MAX_REPLY_TOKENS
from reasonrag.training.doctor.model_shapes import ModelShape

GB: Final = 2**30
"""2**30 bytes: the unit of "an 80 GB card" and of nvidia-smi."""
USABLE_SHARE: Final = 0.94
"""Share of a GPU's memory that is planned with; fragmentation takes the rest."""
CUDA_OVERHEAD: Final = int(1.5 * GB)
"""Bytes of CUDA's context, library workspaces and NCCL buffers."""
ZERO3_LIVE_PARAMETERS: Final = 1_000_000_000
"""Parameters gathered or updated at once by ZeRO-3: DeepSpeed's stage3_max_live_parameters and sub_group_size."""
NF4_BYTES: Final = 0.5 + (8 + 32 / 256) / 64 / 8
"""Bytes of a weight in NF4 with double quantisation: 4 bits, plus one 8-bit constant per 64 weights and one 32-bit
constant per 256 of those (arXiv 2305.14314, section 3: 0.127 bits)."""
VLLM_SHARE: Final = 0.9
"""Of a GPU's memory, which vLLM takes for itself: its gpu_memory_utilization."""
ADAM_STATE_BYTES: Final = 8
"""Bytes of Adam's two fp32 moments of a trained parameter."""


class Zero(BaseModel, frozen=True):
    """How DeepSpeed ZeRO divides a training. stage: 0 without DeepSpeed."""

    stage: int = Field(default=0, ge=0, le=3)
    offload_optimizer: bool = False
    offload_parameters: bool = False


class Adapter(BaseModel, frozen=True):
    """rank, targets: of LoRA. bits: per frozen weight in QLoRA."""

    rank: int = Field(default=8, gt=0)
    targets: tuple[str, ...] = ("all",)
    bits: int = Field(default=4, ge=2, le=8)


class TrainingSetup(BaseModel, frozen=True):
    """The parts of a training that determine its memory. batch: rows (pairs) per GPU and forward pass."""

    stage: Literal["sft", "dpo", "kto", "rm", "policy"] = "dpo"
    method: Literal["full", "lora", "qlora"] = "full"
    cutoff_len: int = Field(default=2048, gt=0)
    batch: int = Field(default=1, gt=0)
    gpus: int = Field(default=1, gt=0)
    zero: Zero = Zero()
    adapter: Adapter = Adapter()
    checkpointing: bool = True
    half: bool = True
    """bf16 or fp16."""
    liger: bool = False
    reference: bool = True
    """Whether the loss needs a reference model; ORPO and SimPO do not."""
    reply: int = MAX_REPLY_TOKENS
    """Tokens of the longest reply, of a policy: only they have logits."""

    @property
    def limit(self) -> str:
        """The key that bounds a row."""
        return "max_length" if self.stage == "policy" else "cutoff_len"

    @property
    def assumed(self) -> str:
        rows = f"every row is as long as {self.limit}"
        return f"{rows}, and {self.reply:,} tokens of it are the reply" if self.stage == "policy" else rows

    @property
    def tokens(self) -> int:
        """Tokens in one forward pass: DPO and the reward model put both replies of a pair into it."""
        sides = 2 if self.stage in ("dpo", "rm") else 1
        return sides * self.batch * self.cutoff_len

    @property
    def name(self) -> str:
        """`full, ZeRO-3, offloaded`."""
        words = [self.method, f"ZeRO-{self.zero.stage}"] if self.zero.stage else [self.method]
        offloaded = self.zero.offload_optimizer or self.zero.offload_parameters
        return ", ".join([*words, "offloaded"] if offloaded else words)


class MemoryPlan(BaseModel, frozen=True):
    """Bytes on each GPU by purpose, and host: in the machine's memory for all its GPUs; of several machines, in all."""

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
        """Peak bytes on each GPU."""
        return self.states + self.activations + self.logits + self.buffers + self.overhead

    def fits(self, gpu_memory: int) -> bool:
        """gpu_memory: bytes of each GPU. Whether the host has enough is not known."""
        return self.gpu <= USABLE_SHARE * gpu_memory


def plan_memory(shape: ModelShape, training: TrainingSetup) -> MemoryPlan:
    """The memory that training a model of this shape takes."""
    adapter = training.adapter
    trained = shape.parameters if training.method == "full" else shape.lora_parameters(adapter.rank, adapter.targets)
    trained += shape.hidden_size + 1 if training.stage == "rm" else 0  # a head with one output
    weights, gradients, optimizer = _states(shape, training, trained)
    reference = _reference(shape, training)
    host = 0
    if training.zero.offload_parameters:
        host += training.gpus * (weights + reference)
        weights = reference = 0
    if training.zero.offload_optimizer:
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
        buffers=2 * min(shape.parameters, ZERO3_LIVE_PARAMETERS) if training.zero.stage == 3 else 0,  # noqa: PLR2004 - its name
        host=host,
    )


def _states(shape: ModelShape, training: TrainingSetup, trained: int) -> tuple[int, int, int]:
    """Bytes of weights, gradients and optimizer states on each GPU.

    Without DeepSpeed LLaMA-Factory trains fp32 weights, which autocast copies to half precision; DeepSpeed keeps
    weights and gradients in half precision and fp32 weights among the optimizer states. Either way 16 bytes per trained
    parameter, plus the copies. ZeRO-1 shards the optimizer states, ZeRO-2 gradients too, ZeRO-3 everything. QLoRA
    quantises the layers' linear maps, not embeddings and norms.
    """
    half, bits = 2 if training.half else 4, training.adapter.bits
    frozen: float = 0 if training.method == "full" else half * shape.parameters
    if training.method == "qlora":
        frozen += ((NF4_BYTES if bits == 4 else bits / 8) - half) * shape.linear_weights  # noqa: PLR2004 - NF4
    if training.zero.stage == 0:
        copies = 2 * trained if training.half else 0
        return int(frozen) + 4 * trained + copies, 4 * trained, ADAM_STATE_BYTES * trained
    optimizer = (ADAM_STATE_BYTES + (4 if training.half else 0)) * trained
    sizes = {3: frozen + half * trained, 2: half * trained, 1: optimizer}  # by the first stage that shards them
    weights, gradients, optimizer = (
        int(size / training.gpus if training.zero.stage >= stage else size) for stage, size in sizes.items()
    )
    return weights, gradients, optimizer


def _reference(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes of the reference model: a copy of the weights in full training; with an adapter none, as the adapter is
    switched off instead. TRL shards it with ZeRO-3 only."""
    if training.method != "full" or training.stage not in ("dpo", "kto") or not training.reference:
        return 0
    held = (2 if training.half else 4) * shape.parameters
    return held // training.gpus if training.zero.stage == 3 else held  # noqa: PLR2004 - its name


def activation_bytes(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes kept from the forward pass for the backward pass. With checkpointing: the input of every layer, plus one
    whole layer that is recomputed; without: every layer. The residual stream has 4 bytes a number if weights are fp32,
    in full training without DeepSpeed; else 2."""
    residual = (2 if training.half and (training.zero.stage or training.method != "full") else 4) * shape.hidden_size
    of_a_layer, last_norm = activation_bytes_per_token(shape, training), 2 * residual
    if training.checkpointing:
        return training.tokens * (of_a_layer + shape.num_hidden_layers * residual + last_norm)
    return training.tokens * (shape.num_hidden_layers * of_a_layer + last_norm)


def activation_bytes_per_token(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes that one layer keeps per token.

    Two norms: their fp32 input and their output; the input of every linear map, which trained weights and adapters
    need (queries, keys and values share one, gate and up another); queries, keys, values and output of the attention;
    for the gated MLP its two halves, the activation and the product. SDPA keeps no scores.
    """
    half = 2 if training.half else 4
    hidden, inner = shape.hidden_size, shape.intermediate_size
    norms = 2 * hidden * (4 + half)
    linears = half * (hidden + hidden + hidden + inner)
    attention = half * (hidden + 2 * shape.key_value_size + hidden) + 4 * shape.num_attention_heads
    gated = half * 3 * inner
    return norms + linears + attention + gated


def logits_bytes(shape: ModelShape, training: TrainingSetup) -> int:
    """Peak bytes of the logits (vocabulary x tokens) that LLaMA-Factory holds at once.

    dpo: during the reference pass, logits and log-probabilities of the model (4 + 4 bytes) and of the reference, whose
    logits are copied (4 + 4 + 4), for both replies; without a reference the model's log-probabilities and three
    gradients (16). kto: the model's (8, plus 4 for the copy split by label) and the reference's for the reply and for
    the unrelated one (4 + 8), plus that copy for several rows. sft: half-precision logits (2), log-probabilities (4),
    gradients (4 + 2); none with Liger's fused loss. rm: logits in both precisions (2 + 4), although unused. policy:
    log-probabilities and two gradients of them (12, as measured with torch 2.13 on a CPU), of the replies alone.
    """
    held = {
        "dpo": 20 if training.reference else 16,
        "kto": 24 if training.batch == 1 else 28,
        "sft": 0 if training.liger else 12,
        "rm": 6,
        "policy": 12,
    }
    replies = training.batch * min(training.reply, training.cutoff_len)
    return held[training.stage] * (replies if training.stage == "policy" else training.tokens) * shape.vocab_size


def rows_served(shape: ModelShape, tokens: int, gpu_memory: int) -> float:
    """How many conversations of so many tokens vLLM holds at a time on a GPU, beside the weights in bf16: keys and
    values of every layer, two bytes each, in the share of the memory that it takes."""
    room = VLLM_SHARE * gpu_memory - CUDA_OVERHEAD - 2 * shape.parameters
    return max(0, room) / (2 * 2 * shape.num_hidden_layers * shape.key_value_size * tokens)


def longest_cutoff(shape: ModelShape, training: TrainingSetup, gpu_memory: int) -> int:
    """The largest `cutoff_len` that fits, in steps of 64; 0 if none does. gpu_memory: bytes of each GPU."""

    def needed(cutoff_len: int) -> int:
        return plan_memory(shape, training.model_copy(update={"cutoff_len": cutoff_len})).gpu

    tried = range(64, shape.max_position_embeddings + 1, 64)
    return 64 * bisect(tried, USABLE_SHARE * gpu_memory, key=needed)


def alternatives(training: TrainingSetup) -> list[TrainingSetup]:
    """Other ways to train the same rows, in order of how much they change what is learned: full training, sharded or
    offloaded, then LoRA, then QLoRA."""
    offloaded = Zero(stage=3, offload_optimizer=True, offload_parameters=True)
    full = training.model_copy(update={"method": "full", "zero": Zero()})
    adapter = training.adapter.model_copy(update={"rank": max(training.adapter.rank, 64)})
    lora = full.model_copy(update={"method": "lora", "adapter": adapter})
    if training.stage == "policy":
        return [full, lora]
    return [
        full,
        full.model_copy(update={"zero": Zero(stage=3)}),
        full.model_copy(update={"zero": offloaded}),
        lora,
        lora.model_copy(update={"zero": Zero(stage=3)}),
        lora.model_copy(update={"method": "qlora"}),
    ]
