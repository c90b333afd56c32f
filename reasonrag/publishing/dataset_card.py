"""The data set card: README.md on the Hub, filled from recorded facts, never from guesses.

Facts come from the data set directory, the audit and the staged files; what is not recorded is called unknown. Names
from data are untrusted: the template escapes every value for Markdown, and names are printed as code spans. The YAML
front matter is written by the Hub's own client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from preference.export.formats import CONVERSATIONS, SPLITS
from preference.export.summary import SUMMARY, PairSummary
from reasonrag.agent.protocols.known import papers_of
from reasonrag.curation.audit.report import AuditReport
from reasonrag.curation.dataset_directory import DatasetInventory
from reasonrag.curation.pairs import summary_rows
from reasonrag.curation.publish_blockers import Blocker
from reasonrag.publishing.licences import KNOWN_LICENCES, UNKNOWN, Licence, licence_of
from reasonrag.publishing.staging import hub_configs, hub_dataset_info, without_addresses
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import Table, Verbatim, code, counts_text, markdown_templates, tokens_text

_TEMPLATE = "dataset_card.md.j2"
_SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M", 10**7: "1M<n<10M"}
"""The Hub's size categories, by their upper end."""


@dataclass(frozen=True)
class DatasetCardFacts:
    repo: str
    inventory: DatasetInventory
    audit: AuditReport
    licence: str | None
    """As given; None to derive it."""
    aside: Sequence[Blocker]
    """Blockers that were set aside."""
    staged: Mapping[str, str]
    """What each file holds, by its path."""
    traces: str | None = None
    """The repository of its traces."""


def render_dataset_card(facts: DatasetCardFacts) -> str:
    """README.md: front matter and text."""
    templates = markdown_templates()
    templates.filters["count"] = lambda value: UNKNOWN if value is None else f"{value:,}"
    text = templates.get_template(_TEMPLATE).render(_values(facts))
    return f"---\n{front_matter(facts)}\n---\n\n{mask_secrets(text, secrets())}"


def front_matter(facts: DatasetCardFacts) -> str:
    from huggingface_hub import DatasetCardData  # publish has made sure that it is there

    configs = [
        {"config_name": each.name}
        | ({"default": True} if each.name == "default" else {})
        | {"data_files": [{"split": split, "path": f"{each.folder}/{split}-*.parquet"} for split in each.files]}
        for each in hub_configs(facts.inventory)
    ]
    papers = papers_of(run.origin.agent for run in facts.inventory.runs)
    size = sum(map(facts.inventory.rows_of, SPLITS))
    purpose = ["sft"] if facts.inventory.summary.warm_up else ["preference-data", "dpo"]
    english = facts.inventory.datasets and KNOWN_LICENCES.keys() >= set(facts.inventory.datasets)  # all of these are
    data = DatasetCardData(
        language=["en"] if english else None,
        license=_licence(facts),
        pretty_name=facts.repo.rpartition("/")[2],
        size_categories=[next((name for most, name in _SIZES.items() if size < most), "n>10M")],
        task_categories=["question-answering", "text-generation"],
        tags=[*purpose, "step-level", "agentic-rag", "reasonrag", "llama-factory", *papers],
        configs=configs,
    )
    return str(data.to_yaml())


def _licence(facts: DatasetCardFacts) -> str:
    return facts.licence or licence_of(facts.inventory.datasets)


def _values(facts: DatasetCardFacts) -> dict[str, Any]:
    inventory, summary, counter = facts.inventory, facts.inventory.summary, facts.audit.token_counter
    overlap = {name: value for name, value in summary.contamination.items() if name != "checked"}
    known = [(name, KNOWN_LICENCES.get(name, Licence(UNKNOWN, "not given", UNKNOWN))) for name in inventory.datasets]
    return {
        "repo": facts.repo,
        "traces": facts.traces,
        "name": facts.repo.rpartition("/")[2],
        "summary": summary,
        "facts": _facts(facts),
        "size": sum(map(inventory.rows_of, SPLITS)),
        "runs": inventory.runs,
        "licence": _licence(facts),
        "licence_is_derived": facts.licence is None,
        "licences": [(code(name), each.licence, each.source, each.passages) for name, each in known],
        "by_split": inventory.candidate_questions,
        "yields": list(_rows(summary.warm_up)) or Table("", summary_rows(summary)).cells,
        "filters": list(_rows(summary.rules | summary.options)),
        "checks": [
            (code(each.name), each.severity, each.count, each.checked, each.finds) for each in facts.audit.checks
        ],
        "cutoff_len": facts.audit.advised_cutoff,
        "tokenizer": f"{counter.name}{'' if counter.exact else ', an estimate'}",
        "compared": _compared(summary.contamination),
        "contamination": list(_rows(without_addresses(overlap))),
        "aside": facts.aside,
        "configs": hub_configs(inventory),
        "conversations": CONVERSATIONS,
        "entries": list(hub_dataset_info(inventory, facts.repo)),
        "files": [(code(path), about) for path, about in facts.staged.items()],
        "year": _date(inventory)[:4],
        "key": re.sub(r"[^a-z0-9]+", "-", facts.repo.lower()).strip("-"),
    }


def _facts(facts: DatasetCardFacts) -> list[tuple[str, object]]:
    inventory, summary = facts.inventory, facts.inventory.summary
    train, validation = map(inventory.rows_of, SPLITS)
    noun, paired = "pair", summary.questions_with_a_pair
    if summary.warm_up:
        noun, paired = "row", summary.warm_up["with_rows"]
    asked = {name: {getattr(run.origin, name) for run in inventory.runs} - {None} for name in ("agent", "reader")}
    derived = ", derived from the parts below" if facts.licence is None else ""
    return [
        (f"{noun}s", f"{train + validation:,}: {train:,} for training, {validation:,} for validation"),
        ("questions", f"{summary.questions:,}, {paired:,} of them with a {noun}"),
        ("teacher", _names(summary.teachers)),
        *((name, _names(sorted(known))) for name, known in asked.items() if known),
        ("recipe", _names(summary.recipes)),
        *([] if summary.warm_up else [("labels", counts_text(summary.pairs_by_label))]),
        *([("judge", code(judge))] if (judge := without_addresses(summary.judging.get("model"))) else []),
        ("cost", _cost(summary)),
        ("made on", f"{_date(inventory)} (UTC)"),
        ("licence", Verbatim(f"{code(_licence(facts))}{derived}")),
    ]


def _rows(values: Mapping[str, Any]) -> Iterator[tuple[Verbatim, str]]:
    """Settings and counts by their names; those of a part have its name before theirs."""
    for name, value in values.items():
        match value:
            case dict():
                yield from ((code(f"{name}.{key}"), str(each)) for key, each in value.items())
            case list() | tuple():
                yield code(name), ", ".join(map(_in_words, value)) or "none"
            case _:
                yield code(name), "none" if value is None else str(value)


def _in_words(value: object) -> str:
    """An entry of a list; of a split that was not compared its name, and why."""
    return f"{value.get('name')}: {value.get('reason')}" if isinstance(value, dict) else str(value)


def _names(names: Sequence[str]) -> Verbatim:
    return Verbatim(", ".join(code(name) for name in names) or UNKNOWN)


def _cost(summary: PairSummary) -> str:
    usage = summary.usage
    if usage is None:
        return "unknown, because not every question records its cost"
    tokens = f"{usage.calls:,} completions, {tokens_text(usage, ' tokens')}"
    if usage.cost_usd is None:
        return f"{tokens}; dollars unknown, because a model has no price"
    return f"{tokens}, {usage.cost_usd:,.2f} US dollars at the prices of the runs"


def _date(inventory: DatasetInventory) -> str:
    changed = (inventory.directory / SUMMARY).stat().st_mtime
    return datetime.fromtimestamp(changed, tz=UTC).date().isoformat()


def _compared(contamination: dict[str, Any]) -> list[tuple[object, ...]]:
    """The evaluation splits that questions were compared with."""
    keys, checked = ("revision", "sha256"), contamination.get("checked")
    found = [each for each in checked if isinstance(each, dict) and "name" in each] if isinstance(checked, list) else []
    return [
        (code(each["name"]), str(each.get("questions", UNKNOWN)), *(code(each.get(key) or UNKNOWN) for key in keys))
        for each in found
    ]
