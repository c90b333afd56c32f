"""The model card: README.md of a trained model, with its base, its training and the prompts it needs.

Filled from the output directory, never from guesses; what is not recorded is called unknown. Names and texts from
outside are escaped by `rendering`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from reasonrag.agent.protocols.known import papers_of
from reasonrag.agent.settings import AGENTS
from reasonrag.data.yaml_text import read_yaml
from reasonrag.errors import InputError
from reasonrag.files import read_small_text
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import Verbatim, code, markdown_templates, one_line
from reasonrag.training.llamafactory.config_resolution import OPERATIONAL, describe_batch
from reasonrag.training.metrics import SHOWN_METRICS, Metrics
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.provenance import Provenance
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
    "policy": "A policy trained by reinforcement (policy gradients)",
}


def render_model_card(folder: Path, record: TrainingRecord, told: Provenance, metrics: Metrics) -> str:
    """README.md: front matter and text."""
    templates = markdown_templates()
    templates.filters["text"] = lambda value: Verbatim(json.dumps(one_line(value)))
    adapter = told.finetuning_type not in ("full", "freeze", "merged")
    by_trl = "trl" in record.versions and "llamafactory" not in record.versions
    trainer = "transformers" if told.stage == "policy" else "TRL" if by_trl else "LLaMA-Factory"
    nodes, gpus = record.settings.get("nodes") or 1, record.settings.get("gpus_per_node") or len(record.gpus) or 1
    processes = int(nodes) * int(gpus)
    logged = [(name, shown) for name, shown in SHOWN_METRICS.items() if name in metrics.last]
    results = [(shown, f"{metrics.first[name]:.4g}", f"{metrics.last[name]:.4g}") for name, shown in logged]
    only = {name: _only(values) for name, values in told.asked if name not in ("renderer", "warnings")}
    values = {
        "record": record,
        "provenance": told,
        "metrics": metrics,
        "name": folder.resolve().name,
        "folder": folder.name,
        "what": _WHAT.get(told.stage, f"A model trained in stage {told.stage}"),
        "base": _named(told.base_model),
        "licence": licence_of_base(told.base_model),
        "trainer": trainer,
        "data_names": [_named(each) for each in (*told.data[:-1], record.data["directory"])],
        "batch": describe_batch(record.resolved | {"stage": told.stage}, processes),
        "hyperparameters": [
            (code(key), code(_shown(value))) for key, value in record.resolved.items() if key not in OPERATIONAL
        ],
        "conditions": [
            ("prompts", Verbatim(f"`prompts/`, renderer {code(told.asked.renderer)}")),
            *((code(name), code(value)) for name, value in only.items() if value),
        ],
        "results": results or [("none logged", "", "")],
        "only": only,
        "agent": next((each for each in told.asked.agent if each in AGENTS), None),
        "adapter": adapter,
    }
    text = mask_secrets(templates.get_template(_TEMPLATE).render(values), secrets())
    return f"---\n{_front_matter(told, trainer, adapter=adapter)}---\n\n{text}"


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


def _front_matter(told: Provenance, trainer: str, *, adapter: bool) -> str:
    values: dict[str, Any] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-classification" if told.stage in ("rm", "critic") else "text-generation",
        "tags": ["reasonrag", "agentic-rag", trainer.lower(), told.stage, *papers_of(told.asked.agent)],
    }
    if not Path(told.base_model).is_absolute():
        values["base_model"] = told.base_model
    if (licence := licence_of_base(told.base_model)) != UNKNOWN:
        values["license"] = licence
    return yaml.safe_dump(values, sort_keys=False)


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
