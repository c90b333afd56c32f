"""The shape of a Qwen2 model, from which its parameters and the size of its activations follow.

Read from the model's config.json if it is here, else from the published shapes of Qwen2.5. `memory`
knows what a training needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, ValidationError

from preference.records import first_error
from reasonrag.errors import InputError
from reasonrag.model_folder import CONFIG, read_model_config


class ModelShape(BaseModel, frozen=True):
    """Shape of a Qwen2 decoder. Fields are named as in its config.json."""

    vocab_size: int = Field(gt=0)
    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int = Field(gt=0)
    tie_word_embeddings: bool = False
    max_position_embeddings: int = Field(default=32_768, gt=0)

    @property
    def key_value_size(self) -> int:
        """Width of keys, and of values."""
        return self.num_key_value_heads * (self.hidden_size // self.num_attention_heads)

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Linear maps of a layer: name to (inputs, outputs)."""
        hidden, inner, narrow = self.hidden_size, self.intermediate_size, self.key_value_size
        return {
            "q_proj": (hidden, hidden),
            "k_proj": (hidden, narrow),
            "v_proj": (hidden, narrow),
            "o_proj": (hidden, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def linear_weights(self) -> int:
        """Weights of the linear maps in all layers, without biases; QLoRA quantises these."""
        return self.num_hidden_layers * sum(inputs * outputs for inputs, outputs in self.linears.values())

    @property
    def embeddings(self) -> int:
        """Weights of the embedding table, and of the output head if it is not tied."""
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    @property
    def parameters(self) -> int:
        """Total parameters. Queries, keys and values have biases; RMS norms have one weight per dimension."""
        biases = self.hidden_size + 2 * self.key_value_size
        norms = 2 * self.hidden_size
        return self.embeddings + self.linear_weights + self.num_hidden_layers * (biases + norms) + self.hidden_size

    def lora_parameters(self, rank: int, targets: tuple[str, ...] = ("all",)) -> int:
        """Parameters of a LoRA adapter: rank x (inputs + outputs) per adapted linear map (arXiv 2106.09685, 4.1).

        targets: names of maps; `all` means every map but the head, as in LLaMA-Factory.
        """
        maps = self.linears
        named = maps if "all" in targets else {name: maps[name] for name in targets if name in maps}
        return self.num_hidden_layers * sum(rank * (inputs + outputs) for inputs, outputs in named.values())


QWEN2_5: Final[Mapping[str, ModelShape]] = {
    size: ModelShape.model_validate(dict(zip(ModelShape.model_fields, fields, strict=False)))
    for size, *fields in (
        ("0.5B", 151_936, 896, 4864, 24, 14, 2, True),
        ("1.5B", 151_936, 1536, 8960, 28, 12, 2, True),
        ("3B", 151_936, 2048, 11_008, 36, 16, 2, True),
        ("7B", 152_064, 3584, 18_944, 28, 28, 4, False),
        ("14B", 152_064, 5120, 13_824, 48, 40, 8, False),
        ("32B", 152_064, 5120, 27_648, 64, 40, 8, False),
        ("72B", 152_064, 8192, 29_568, 80, 64, 8, False),
    )
}
"""Qwen2.5 by size, of the first fields of a shape: layers and heads from the model cards at huggingface.co/Qwen and
Table 1 of arXiv 2412.15115, widths from their config.json."""


def find_shape(model: str) -> ModelShape:
    """The shape of the model in a folder, or of a name like `Qwen/Qwen2.5-7B-Instruct`, `qwen2.5-7b`, `7B`.

    Raises InputError for anything else.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        values = read_model_config(folder)
        if (kind := values.get("model_type", "qwen2")) != "qwen2":
            raise InputError(
                f"{folder / CONFIG}: model_type is {kind!r}; memory can be planned for qwen2 only (Qwen2 and Qwen2.5)"
            )
        try:
            return ModelShape.model_validate(values)
        except ValidationError as error:
            raise InputError(f"{folder / CONFIG}: {first_error(error)}") from error
    named = model.rpartition("/")[2].lower().replace("_", "-")
    for size, shape in QWEN2_5.items():
        if named == size.lower() or ("qwen2" in named and f"-{size.lower()}-" in f"{named}-"):
            return shape
    raise InputError(
        f"the shape of {model!r} is unknown: there is no such folder, and only the sizes of Qwen2.5 are known by name "
        f"({', '.join(QWEN2_5)}). Give the folder of the model, or a name of the same size, as Qwen2.5-7B"
    )
