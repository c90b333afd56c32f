"""The model card: README.md of a trained model, with its base, its training and the prompts it needs.

Filled from the output directory, never from guesses; what is not recorded is called unknown. Names and texts from
outside are escaped by `rendering`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from reasonrag.data.yaml_text import read_yaml
from reasonrag.errors import InputError
from reasonrag.files import read_small_text
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import Verbatim, code, markdown_templates, one_line
from reasonrag.training.llamafactory.batch import effective_batch
from reasonrag.training.metrics import SHOWN_METRICS, Metrics
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.provenance import Provenance, TrainingConditions
from reasonrag.training.stages.runner import FOLDER

CARD: Final = "README.md"
UNKNOWN: Final = "unknown"
_TEMPLATE = "model_card.md.j2"
_WHAT = {
    "dpo": "A preference-tuned policy (DPO)",
    "sft": "A supervised fine-tune",
    "rm": "A reward model",
    "kto": "A preference-tuned policy (KTO)",
    "critic": "A critic, which scores the steps",
}
_SHOWN = (
    *("pref_loss", "pref_beta", "pref_ftx", "kto_chosen_weight", "kto_rejected_weight", "lora_rank", "lora_alpha"),
    *("lora_target", "quantization_bit", "learning_rate", "lr_scheduler_type", "warmup_ratio", "warmup_steps"),
    "num_train_epochs",
    *(
        "max_steps",
        "max_samples",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "cutoff_len",
        "template",
        "bf16",
    ),
    *("fp16", "deepspeed", "seed"),
)


@dataclass(frozen=True)
class ModelCardFacts:
    """What the card is filled from. history: provenance of the folders it was trained from, oldest first."""

    folder: Path
    record: TrainingRecord
    config: dict[str, Any]
    provenance: Provenance
    metrics: Metrics
    history: Sequence[Provenance]


def render_model_card(facts: ModelCardFacts) -> str:
    """README.md: front matter and text."""
    templates = markdown_templates()
    templates.filters["text"] = lambda value: Verbatim(json.dumps(one_line(value)))
    text = templates.get_template(_TEMPLATE).render(_values(facts))
    return f"---\n{_front_matter(facts)}---\n\n{mask_secrets(text, secrets())}"


def front_matter_of(card: str) -> dict[str, Any]:
    """The metadata at the beginning of a card. Raises ValueError for YAML that cannot be read within bounds."""
    values = read_yaml(card[4:].partition("\n---")[0]) if card.startswith("---\n") else {}
    return values if isinstance(values, dict) else {}


def licence_of_base(base: str) -> str:
    """The licence in the base model's own card; unknown for a name on the Hub, which is not asked."""
    try:
        licence = front_matter_of(read_small_text(Path(base) / CARD)).get("license")
    except (OSError, ValueError, InputError):
        licence = None
    return licence.strip() or UNKNOWN if isinstance(licence, str) else UNKNOWN


def _front_matter(facts: ModelCardFacts) -> str:
    values: dict[str, Any] = {
        "library_name": "peft" if _is_adapter(facts) else "transformers",
        "pipeline_tag": "text-classification"
        if facts.record.data.get("stage") in ("rm", "critic")
        else "text-generation",
        "tags": ["reasonrag", "agentic-rag", _trainer(facts).lower(), str(facts.config["stage"]), "arxiv:2505.14069"],
    }
    base = str(facts.config["model_name_or_path"])
    if origin := next((each for each in (base, *_bases(facts)) if not Path(each).is_absolute()), None):
        values["base_model"] = origin
    licence = licence_of_base(base)
    if licence != UNKNOWN:
        values["license"] = licence
    return yaml.safe_dump(values, sort_keys=False)


def _bases(facts: ModelCardFacts) -> list[str]:
    """What the model's own base was trained from, the youngest first; of an adapter none, as it fits its own alone."""
    return [] if _is_adapter(facts) else [each.base_model for each in reversed(facts.history)]


def _is_adapter(facts: ModelCardFacts) -> bool:
    return str(facts.config["finetuning_type"]) not in ("full", "freeze", "merged")


def _trainer(facts: ModelCardFacts) -> str:
    return "TRL" if facts.provenance.critic else "LLaMA-Factory"


def _values(facts: ModelCardFacts) -> dict[str, Any]:
    record, config, told = facts.record, facts.config, facts.provenance
    base, stage, lengths = str(config["model_name_or_path"]), str(config["stage"]), record.lengths
    earlier = [
        each.model_copy(update={"base_model": _named(each.base_model), "data": [_named(name) for name in each.data]})
        for each in facts.history
    ]
    return {
        "record": record,
        "provenance": told,
        "metrics": facts.metrics,
        "name": facts.folder.resolve().name,
        "folder": facts.folder.name,
        "what": _WHAT.get(stage, f"A model trained in stage {stage}"),
        "base": _named(base),
        "licence": licence_of_base(base),
        "stage": stage,
        "trainer": _trainer(facts),
        "finetuning_type": str(config["finetuning_type"]),
        "data_name": _named(record.data["directory"]),
        "batch": effective_batch(config, _processes(record)),
        "date": (record.ended or datetime.now(UTC).isoformat())[:10],
        "history": earlier,
        "hyperparameters": [(code(key), code(_shown(config[key]))) for key in _SHOWN if key in config],
        "conditions": _conditions(told.asked),
        "longest": f"{lengths['longest_row']:,}" if lengths.get("longest_row") else "an unknown number of",
        "cut": f"{lengths['rows_cut']:,}" if "rows_cut" in lengths else "an unknown number of",
        "results": _results(facts.metrics),
        "only": {name: _only(values) for name, values in told.asked if name != "renderer"},
        "adapter": _is_adapter(facts),
        "notes": [each[:1].upper() + each[1:] for each in record.notes if "conditions" in each],
    }


def _processes(record: TrainingRecord) -> int:
    """GPUs of all machines, as far as this one's record says."""
    per_node = record.settings.get("gpus_per_node") or len(record.gpus) or 1
    return int(record.settings.get("nodes") or 1) * int(per_node)


def _named(model: str) -> str:
    """A name without local paths; with the model's, where it is a stage of one."""
    place = Path(model)
    if not place.is_absolute():
        return model
    return "/".join(place.parts[-3:]) if place.parent.name == FOLDER and len(place.parts) > 3 else place.name  # noqa: PLR2004 - root and three


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, list | dict) else str(value)
    return Path(text).name if Path(text).is_absolute() else text


def _only(values: Sequence[Any]) -> Any:
    """The known value, if there is exactly one."""
    known = [each for each in values if each is not None]
    return known[0] if len(known) == 1 else None


def _conditions(asked: TrainingConditions) -> list[tuple[str, object]]:
    """How it was prompted in training, of what is known."""
    chars = _only(asked.max_passage_chars)
    retriever = _only(asked.retriever)
    rows = [
        ("prompts", Verbatim(f"`prompts/`, renderer {code(asked.renderer)}")),
        ("passages per search", _only(asked.top_k)),
        ("passages cut at", f"{chars} characters" if chars else None),
        ("order of passages", _only(asked.passage_order)),
        ("answer style", _only(asked.style)),
        ("maximum steps", _only(asked.max_steps)),
        ("retriever of the training data", code(retriever) if retriever else None),
    ]
    return [(name, value) for name, value in rows if value]


def _results(metrics: Metrics) -> list[tuple[str, ...]]:
    """Of each metric that was logged: the first, the last and the best value."""
    rows = []
    for name, shown in SHOWN_METRICS.items():
        if name in metrics.last:
            best = metrics.best.get(name)
            ends = (f"{each[name]:.4g}" for each in (metrics.first, metrics.last))
            rows.append((shown, *ends, f"{best.value:.4g} (step {best.step:,})" if best else ""))
    return rows or [("none logged", "", "", "")]
