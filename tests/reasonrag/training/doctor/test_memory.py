"""The memory plan: what is published of Qwen2.5 and of ZeRO, laws, and a real Qwen2 of transformers beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.errors import InputError
from reasonrag.training.doctor.memory import (
    GB,
    NF4_BYTES,
    Adapter,
    MemoryPlan,
    TrainingSetup,
    Zero,
    activation_bytes_per_token,
    logits_bytes,
    longest_cutoff,
    plan_memory,
)
from reasonrag.training.doctor.model_shapes import QWEN2_5, ModelShape, find_shape
from tests.helpers.command_line import AskLlamaFactory

SEVEN = QWEN2_5["7B"]
SMALL = ModelShape(
    vocab_size=512,
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
)
TIED = SMALL.model_copy(update={"tie_word_embeddings": True, "num_key_value_heads": 8})
REAL = """
import json, sys, torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

def model(shape, layers, lora):
    config = Qwen2Config(**(shape | {"num_hidden_layers": layers}), attn_implementation="sdpa", use_cache=False)
    made = Qwen2ForCausalLM(config).to(torch.bfloat16)
    if lora:
        made = get_peft_model(made, LoraConfig(r=4, target_modules="all-linear"))
        made.enable_input_require_grads()
        for each in made.parameters():  # as LLaMA-Factory does
            each.data = each.data.float() if each.requires_grad else each.data
    return made

def kept(made, tokens):
    own = {each.untyped_storage().data_ptr() for each in [*made.parameters(), *made.buffers()]}
    seen = {}
    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor
    ids = torch.randint(0, 8, (2, tokens // 2))
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    lora = any(each.dtype == torch.float32 for each in made.parameters())
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=lora):
        made(input_ids=ids, attention_mask=mask, logits_to_keep=1)
    return sum(seen.values())

asked = json.load(sys.stdin)
whole = [model(each, each["num_hidden_layers"], False) for each in asked["shapes"]]
found = {"parameters": [sum(p.numel() for p in each.parameters()) for each in whole]}
lora = model(asked["shapes"][0], 3, True)
found["lora"] = sum(p.numel() for name, p in lora.named_parameters() if "lora_" in name)
for kind in (False, True):
    few, many = (kept(model(asked["shapes"][0], layers, kind), 256) for layers in (2, 4))
    found["lora kept" if kind else "kept"] = (many - few) / 2 / 256
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def real(ask_llama_factory: AskLlamaFactory) -> dict[str, Any]:
    """What transformers and peft make of the small shapes."""
    found: dict[str, Any] = ask_llama_factory(REAL, {"shapes": [SMALL.model_dump(), TIED.model_dump()]})
    return found


# -- shapes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "billions", "without_words"),
    [
        ("0.5B", 0.49, 0.36),
        ("1.5B", 1.54, 1.31),
        ("3B", 3.09, 2.77),
        ("7B", 7.61, 6.53),
        ("14B", 14.7, 13.1),
        ("32B", 32.5, 31.0),
        ("72B", 72.7, 70.0),
    ],
)
def test_parameters_are_those_of_the_model_card(size: str, billions: float, without_words: float) -> None:
    """With and without embeddings, as the cards of Qwen2.5 have them."""
    shape = QWEN2_5[size]
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert (shape.parameters - shape.embeddings) / 1e9 == pytest.approx(without_words, rel=0.01)


def test_parameters_are_those_that_transformers_makes(real: dict[str, Any]) -> None:
    """To the last one, words tied or not; and those of LoRA are those that peft adds."""
    assert real["parameters"] == [SMALL.parameters, TIED.parameters]
    assert real["lora"] == SMALL.lora_parameters(4)


@pytest.mark.parametrize(
    ("name", "size"),
    [("Qwen/Qwen2.5-7B-Instruct", "7B"), ("72B", "72B"), ("me/Qwen2.5-32B-Instruct-dpo", "32B")],
)
def test_a_shape_is_found_by_name(name: str, size: str) -> None:
    """Whose model it is and what was made of it do not matter. What is not known is no guess: the error names the sizes
    that are known."""
    assert find_shape(name) == QWEN2_5[size]
    for unknown in ("Qwen/Qwen2.5-8B", "Qwen/Qwen3-14B", "Mistral-7B", "llama", "models/none"):
        with pytest.raises(InputError, match=r"0\.5B, 1\.5B"):
            find_shape(unknown)


def test_a_folder_is_asked_first(tmp_path: Path) -> None:
    """A model's config.json decides, and other kinds of model are refused."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps(SMALL.model_dump() | {"model_type": "qwen2", "use_cache": True}))
    assert find_shape(str(base)) == SMALL
    (base / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(InputError, match="model_type is 'llama'"):
        find_shape(str(base))
    (base / "config.json").write_text("{")
    with pytest.raises(InputError, match="not a model"):
        find_shape(str(base))


# -- what is published -----------------------------------------------------------------------------------------------


def test_parts_are_those_that_papers_count() -> None:
    """ZeRO, section 3.1: weights and gradients in half precision, 12 bytes of Adam; DPO's frozen reference at 2, and
    with LoRA none. Of logits scores and their logarithms in fp32, for both sides and both models, and a copy. QLoRA,
    section 3: constants of double quantisation are 0.127 bits a weight."""
    full = plan_memory(SEVEN, TrainingSetup(zero=Zero(stage=1)))
    lora = plan_memory(SEVEN, TrainingSetup(method="lora", adapter=Adapter(rank=64)))
    assert (full.weights, full.gradients, full.optimizer) == tuple(each * SEVEN.parameters for each in (2, 2, 12))
    assert full.reference == 2 * SEVEN.parameters
    assert plan_memory(SEVEN, TrainingSetup(stage="sft", zero=Zero(stage=1))).reference == 0
    assert (lora.trained, lora.reference) == (161_480_704, 0)
    assert pytest.approx(4.127, abs=1e-3) == NF4_BYTES * 8
    assert logits_bytes(SEVEN, TrainingSetup(cutoff_len=4096)) == 20 * 2 * 4096 * 152_064


@pytest.mark.parametrize(("zero", "gigabytes"), [(1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_divides_what_its_paper_says(zero: int, gigabytes: float) -> None:
    """Figure 1 of arXiv 1910.02054: 7.5 B parameters on 64 GPUs."""
    layers = QWEN2_5["7B"].model_copy(update={"vocab_size": 135_900})
    assert layers.parameters == pytest.approx(7.5e9, rel=1e-3)
    made = plan_memory(layers, TrainingSetup(stage="sft", zero=Zero(stage=zero), gpus=64))
    assert made.states / 1e9 == pytest.approx(gigabytes, abs=0.1)


def test_activations_are_those_that_torch_keeps(real: dict[str, Any]) -> None:
    """Of a layer and a token, in half precision: what autograd saves for a real Qwen2, in full and by LoRA."""
    assert activation_bytes_per_token(SMALL, TrainingSetup(zero=Zero(stage=3))) == pytest.approx(real["kept"], rel=0.1)
    assert activation_bytes_per_token(SMALL, TrainingSetup(method="lora")) == pytest.approx(real["lora kept"], rel=0.25)


# -- laws ----------------------------------------------------------------------------------------------------------

TRAININGS = st.builds(
    TrainingSetup,
    stage=st.sampled_from(["sft", "dpo", "kto", "rm"]),
    method=st.sampled_from(["full", "lora", "qlora"]),
    cutoff_len=st.integers(1, 16_384),
    batch=st.integers(1, 16),
    gpus=st.sampled_from([1, 2, 4, 8, 16]),
    zero=st.builds(Zero, stage=st.integers(0, 3)),
    adapter=st.builds(Adapter, rank=st.integers(1, 256)),
    checkpointing=st.booleans(),
    half=st.booleans(),
    liger=st.booleans(),
    reference=st.booleans(),
)
SHAPES = st.sampled_from(list(QWEN2_5.values()))


@given(SHAPES, TRAININGS)
def test_a_plan_is_the_sum_of_its_parts_and_more_to_do_never_takes_less(
    shape: ModelShape, training: TrainingSetup
) -> None:
    """Longer rows, more of them, a larger adapter, what is not computed again; each stage of ZeRO takes no more of the
    model's states than the one before, and stage 3 on twice the GPUs half."""

    def plan(**changes: object) -> MemoryPlan:
        return plan_memory(shape, training.model_copy(update=changes))

    made = plan()
    parts = [made.weights, made.reference, made.gradients, made.optimizer, made.activations, made.logits]
    assert min(parts) >= 0
    assert made.gpu == sum(parts) + made.buffers + made.overhead
    for name in ("cutoff_len", "batch"):
        assert plan(**{name: 2 * getattr(training, name)}).gpu >= made.gpu
    assert plan(adapter=Adapter(rank=2 * training.adapter.rank)).gpu >= made.gpu
    assert plan(checkpointing=True).activations < plan(checkpointing=False).activations
    states = [plan(zero=Zero(stage=stage)).states for stage in (1, 2, 3)]
    assert states == sorted(states, reverse=True)
    assert plan(zero=Zero(stage=3), gpus=2 * training.gpus).states == pytest.approx(states[-1] / 2, abs=4)


@given(SHAPES, TRAININGS)
def test_what_is_offloaded_lies_on_the_host(shape: ModelShape, training: TrainingSetup) -> None:
    """The GPU keeps none of the model's states, and the host at least all that the GPUs had."""
    zero = Zero(stage=3, offload_optimizer=True, offload_parameters=True)
    moved = plan_memory(shape, training.model_copy(update={"zero": zero}))
    before = plan_memory(shape, training.model_copy(update={"zero": Zero(stage=3)}))
    assert moved.states == 0
    gone = before.weights + before.reference + before.optimizer
    assert moved.host >= training.gpus * gone


@given(SHAPES, TRAININGS, st.integers(8, 141))
def test_the_longest_cutoff_fits_and_the_next_does_not(shape: ModelShape, training: TrainingSetup, memory: int) -> None:
    """In steps of 64."""
    longest = longest_cutoff(shape, training, memory * GB)
    if longest:
        assert plan_memory(shape, training.model_copy(update={"cutoff_len": longest})).fits(memory * GB)
    if longest < shape.max_position_embeddings:
        longer = training.model_copy(update={"cutoff_len": longest + 64})
        assert not plan_memory(shape, longer).fits(memory * GB)
