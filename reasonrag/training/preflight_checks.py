"""Preflight checks of a training: what would go wrong, found before anything is spent.

Two ways to refuse: an InputError where the training could not run or would not be what it claims to be; a blocker,
which `--allow NAME` sets aside, where the user may know better. Facts come from the data set, the base model's folder
and LLaMA-Factory's own parser (`llamafactory.inspection`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from preference import Message
from preference.export.formats import messages_of
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.curation.audit.audit import audit
from reasonrag.curation.audit.cutoffs import TokenCounts, advised_cutoff, count_cut_rows
from reasonrag.curation.audit.report import AUDIT, read_audit
from reasonrag.curation.dataset_directory import kept_evaluation_questions
from reasonrag.curation.import_published import UNKNOWN
from reasonrag.curation.publish_blockers import Blocker, evaluation_blockers, refuse_unless_allowed
from reasonrag.curation.token_counters import QwenTokenCounter, token_counter
from reasonrag.errors import InputError, NothingToLearn
from reasonrag.llm.hermes import check_notation
from reasonrag.model_folder import ADAPTER_CONFIG, CONFIG, read_model_config
from reasonrag.rendering import counted
from reasonrag.training.llamafactory.config_files import models_in
from reasonrag.training.llamafactory.config_resolution import TEMPLATE, ResolvedConfig, trainings_before
from reasonrag.training.llamafactory.dataset_info import (
    RANKED_STAGES,
    DatasetEntry,
    TrainingData,
    count_rows,
    read_questions,
    rows_in,
)
from reasonrag.training.llamafactory.foreign_settings import foreign_keys, foreign_settings
from reasonrag.training.llamafactory.inspection import ConfigCheck, TrainingEnvironment
from reasonrag.training.prompt_parity import check_renderer, in_turns_of_tools, prompts_of_training
from reasonrag.training.provenance import TrainingConditions

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_NEEDED: Final = {
    "deepspeed": "'deepspeed>=0.10.0,<=0.18.4'",
    "quantization_bit": "bitsandbytes",
    "enable_liger_kernel": "liger-kernel",
    "flash_attn": "flash-attn",
    "use_unsloth": "unsloth",
}
"""What to give to pip for packages that LLaMA-Factory does not bring, by the key that needs them. It is reported to
work with these versions of deepspeed: its package does not say so, and at its start it asks only if one is there."""


@dataclass(frozen=True)
class Permissions:
    """What the user says of the checks. prompts: folder of the data's prompts, if they are the user's own. allow,
    allow_eval: objections and evaluation splits to go on despite."""

    prompts: Path | None = None
    allow: Sequence[str] = ()
    allow_eval: Sequence[str] = ()


@dataclass
class PreflightFindings:
    """objections: blockers. notes: remarks for the user. permitted: what the user says of them."""

    permitted: Permissions = Permissions()
    objections: list[Blocker] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def object(self, name: str, what: str) -> None:
        self.objections.append(Blocker("--allow", name, what))

    def refuse(self) -> None:
        """Raises InputError for objections that are not allowed."""
        allow, allow_eval = self.permitted.allow, self.permitted.allow_eval
        refuse_unless_allowed(self.objections, allow=allow, allow_eval=allow_eval, therefore="not trained")


@dataclass(frozen=True)
class CheckedData:
    """What is known of a data set that is trained on. base_model: see `check_base_model`. questions, by_split: see
    `read_questions`. prompts: to be kept beside the model, which needs them; None where the data do not say."""

    base_model: Mapping[str, Any]
    questions: Sequence[str]
    by_split: Mapping[str, int]
    conditions: TrainingConditions
    prompts: Prompts | None


# -- before LLaMA-Factory is asked -----------------------------------------------------------------------------


def check_base_model(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The base model's config.json, empty if it is not on this machine. settings: a configuration. Raises InputError
    for a path that does not exist or holds no model, and for damaged provenance."""
    for key, name in models_in(settings, ("model_name_or_path", "adapter_name_or_path", "ref_model")):
        path, first = Path(name).expanduser(), name.partition("/")[0]
        below_a_folder = "/" in name and Path(first).is_dir()
        on_the_hub = _HUB_NAME.fullmatch(name) and first not in (".", "..") and not below_a_folder
        if not path.is_dir() and (path.is_file() or not on_the_hub):
            raise InputError(f"{key}: there is no model at {name}. Give a folder that exists, or a name on the Hub")
    name = str(settings.get("model_name_or_path") or "")
    base = Path(name).expanduser()
    if name and (base / ADAPTER_CONFIG).is_file() and not (base / CONFIG).is_file():
        raise InputError(
            f"{base} is an adapter, not a whole model. To continue training it: --set model_name_or_path=ITS_BASE "
            f"--set adapter_name_or_path={base}; or merge it first: reasonrag train --merge {base} --out {base}-merged"
        )
    trainings_before(settings)  # which refuses damaged provenance
    return read_model_config(base) if name and base.is_dir() else {}


def check_data(
    config: Mapping[str, Any], entries: Sequence[DatasetEntry], data: TrainingData, found: PreflightFindings
) -> CheckedData:
    """The base model of a configuration, rows, audit and prompts. entries: see `check_rows`. Raises InputError."""
    prompts, chosen = prompts_of_training(data.directory, found.permitted.prompts, of_tools=entries[0].of_tools)
    if prompts.agent == "tools" and entries[0].description:
        check_notation(str(config["model_name_or_path"]), found.notes.append)
    base, (questions, by_split) = check_base_model(config), read_questions(data, entries[0])
    check_rows(entries, data, questions, by_split, found)
    _check_audit(data, found)
    conditions = check_renderer(data.directory)
    if entries[0].of_tools and not conditions.agent:  # rewritten: no model was asked so
        conditions = conditions.model_copy(update=in_turns_of_tools(conditions))
        if conditions.renderer != renderer_hash(prompts):
            found.object("renderer", f"the rows of {entries[0].name} have the package's prompts: leave out --prompts")
    else:
        try:
            check_renderer(data.directory, prompts)
        except InputError as error:
            found.object("renderer", str(error))
    _check_base(conditions, config, found)
    kept = prompts if chosen or conditions.renderer == renderer_hash(prompts) else None
    return CheckedData(base, questions, by_split, conditions, kept)


def check_rows(
    entries: Sequence[DatasetEntry],
    data: TrainingData,
    keys: Sequence[str],
    by_split: Mapping[str, int],
    found: PreflightFindings,
) -> None:
    """Wrong descriptions, rows that changed since the audit, and questions from evaluation sets.

    entries: the one to train on, then the held-out one. keys, by_split: see `read_questions`. Raises InputError if
    there are no rows.
    """
    for entry in entries:
        if not entry.as_pairs_writes_it:
            found.object(
                "description",
                f"dataset_info.json describes {entry.name} differently from reasonrag pairs, so roles or turns may be "
                "misread",
            )
        for key, does in foreign_keys(entry.description):
            found.object(key, f"{entry.name} in dataset_info.json: {does}")
        if objection := data.objection(entry):
            found.object(*objection)
    if count_rows(entries[0]) == 0:
        raise NothingToLearn(f"{entries[0].file} has no rows, so there is nothing to train on")
    unknown = {name: count for name, count in by_split.items() if name.rpartition("/")[2] == UNKNOWN}
    in_evaluation = kept_evaluation_questions(data.directory, data.summary) if data.summary else {}
    known = {name: count for name, count in by_split.items() if name not in unknown}
    found.objections += evaluation_blockers(known, in_evaluation)
    if unknown:
        found.notes.append(
            f"the split of {counted(sum(unknown.values()), 'question')} is unknown: never evaluate on "
            "questions that may be among them"
        )
    if not keys:
        found.notes.append(
            f"{data.directory} does not record its questions, so an evaluation cannot detect overlap with them"
        )
    elif not (data.summary and data.summary.contamination.get("checked")):
        found.notes.append("these questions were not checked against evaluation sets (reasonrag pairs --eval does)")


def _check_audit(data: TrainingData, found: PreflightFindings) -> None:
    """Errors of the audit of the pairs become blockers. It is made and written now if there is none."""
    if (data.directory / AUDIT).is_file() and data.summary:
        report = read_audit(data.directory)
    else:
        try:
            report = audit(data.directory)
        except (InputError, OSError) as error:
            found.notes.append(f"its rows could not be audited: {error}")
            return
        found.notes.append(f"{data.directory} had no audit of these rows, so it was audited now")
    for check in report.errors:
        found.object(check.name, f"the audit has an error: {check.finds} ({check.count:,} rows)")


def _check_base(conditions: TrainingConditions, config: Mapping[str, Any], found: PreflightFindings) -> None:
    """Other prompts than those of what the base was trained on are a blocker; what could not be compared is noted."""
    found.notes += conditions.warnings
    for origin in trainings_before(config):
        before = origin.asked.renderer
        if before and conditions.renderer and before != conditions.renderer:
            found.object(
                "base_renderer",
                f"{config['model_name_or_path']} was trained ({origin.stage}) on prompts of renderer {before}, these "
                f"data have {conditions.renderer}: it would have to learn other prompts",
            )


def check_config(config: Mapping[str, Any], base_model: Mapping[str, Any], found: PreflightFindings) -> None:
    """Keys that exclude each other, traps that ruin a training, and what others would have it do. Raises InputError."""
    stage = config.get("stage")
    found.objections += foreign_settings(config)
    if config.get("packing") and stage != "sft":
        raise InputError(f"packing is for stage sft only, this is {stage}: --set packing=null")
    beta = config.get("pref_beta")
    if stage in ("dpo", "kto") and isinstance(beta, int | float) and beta <= 0:
        raise InputError(
            f"pref_beta: {beta} compares no replies, so nothing would be learned from the preferences; give a number "
            "above 0, as in --set pref_beta=0.1, or leave it out"
        )
    if config.get("val_size"):
        found.object(
            "val_size",
            "val_size takes validation rows at random, so they share questions and states with the training rows; "
            "reasonrag pairs --validation splits by question",
        )
    template = str(config.get("template", ""))
    is_qwen2 = base_model.get("model_type") == "qwen2" or "qwen2.5" in str(config.get("model_name_or_path")).lower()
    if not template:
        raise InputError(f"no template is named: that of Qwen2.5 is {TEMPLATE}: --set template={TEMPLATE}")
    if is_qwen2 and template != TEMPLATE:
        found.object("template", f"template {template} is not that of Qwen2.5, which is {TEMPLATE}")
    positions, cutoff_len = base_model.get("max_position_embeddings"), config.get("cutoff_len")
    if isinstance(positions, int) and isinstance(cutoff_len, int) and cutoff_len > positions:
        what = f"cutoff_len {cutoff_len:,} is more than the {positions:,} positions of the model"
        found.object("beyond_context", what)


# -- LLaMA-Factory's answers -----------------------------------------------------------------------------------


def check_packages(config: Mapping[str, Any], stock: TrainingEnvironment, found: PreflightFindings) -> None:
    """Packages that the configuration needs and the training environment lacks, or has in another version."""
    for key, requirement in _NEEDED.items():
        value = config.get(key)
        if not value or (key == "flash_attn" and value != "fa2"):
            continue
        package, *bounds = re.findall(r"[a-z-]+|[\d.]+", requirement)
        there = stock.versions.get(package)
        texts = (*bounds[:1], there or "", *bounds[1:])
        numbers = [tuple(int(each) for each in re.findall(r"\d+", text)[:3]) for text in texts]
        if there is None or numbers != sorted(numbers):
            name = f"no_{package.replace('-', '_')}" if there is None else f"{package}_version"
            what = f"the configuration has `{key}: {value}`, which needs a package that is not beside LLaMA-Factory"
            found.object(name, f"{what}, or is another version: pip install {requirement} there")


def check_config_accepted(config: Mapping[str, Any], judgement: ConfigCheck, found: PreflightFindings) -> None:
    """Raises InputError for a configuration that LLaMA-Factory's own parser rejects."""
    if judgement.error:
        raise InputError(judgement.error)
    model = config.get("model_name_or_path")
    if judgement.chat_template is None:
        found.notes.append(f"the tokenizer of {model} is not on this machine, so its chat template was not checked")
        return
    if not judgement.chat_template:
        what = f"the tokenizer of {model} has no chat template, so no server can format its prompts"
        found.object("chat_template", what)
    if split := judgement.split_specials:
        what = f"{' and '.join(split)} are not single tokens for {model}, so turns never end in template {TEMPLATE}"
        found.object("special_tokens", what)


def resolve_cutoff(
    resolution: ResolvedConfig, data: TrainingData, judgement: ConfigCheck, found: PreflightFindings
) -> dict[str, Any]:
    """Fill in `cutoff_len`, or check what the chosen one cuts; returns what is known of the lengths, for the record."""
    counts = _lengths(resolution, data, judgement, found)
    if counts is None:
        resolution.notes.append("the lengths of its rows are not known, so cutoff_len stays as it is")
        return {"cutoff_len": resolution.config.get("cutoff_len"), "counted_by": None}
    prompt, reply, counted_by = counts
    advised = advised_cutoff(prompt, reply)
    before, model = resolution.config.get("cutoff_len"), resolution.config.get("model_name_or_path")
    exact = judgement.prompt is not None or ("qwen2.5" in str(model).lower() and counted_by == QwenTokenCounter.name)
    if not resolution.chosen_cutoff and isinstance(before, int) and not exact:
        resolution.notes.append(
            f"cutoff_len stays {before:,}: the tokenizer of {model} cannot be read here, and other tokenizers count "
            f"other lengths; by {counted_by} {advised:,} cuts no row. Set it with --set cutoff_len=N"
        )
    elif not resolution.chosen_cutoff:
        resolution.config["cutoff_len"] = advised
        was = f" (was {before:,})" if isinstance(before, int) and before != advised else ""
        resolution.notes.append(f"cutoff_len: {advised:,}, the smallest that cuts no row{was}; tokens by {counted_by}")
    chosen = resolution.config["cutoff_len"]
    if not isinstance(chosen, int) or isinstance(chosen, bool) or chosen < 1:
        raise InputError(f"cutoff_len must be a whole number of tokens, not {chosen!r}")
    cut, longest = count_cut_rows(prompt, reply, chosen), int((prompt + reply).max())
    instead = f"--set cutoff_len={advised}, or leave it out, to cut nothing"
    if cut.prompt_cut:
        what = (
            f"cutoff_len {chosen:,} cuts the end of {cut.prompt_cut:,} prompts "
            f"({100 * cut.prompt_cut / len(prompt):.1f} % of {len(prompt):,} rows, of up to {longest:,} tokens): the "
            f"question and the turn that asks for a reply are lost. Set {instead}"
        )
        found.object("truncated_prompts", what)
    elif cut.truncated:
        of = f"{cut.truncated:,} replies of rows of up to {longest:,} tokens"
        found.object("truncated_replies", f"cutoff_len {chosen:,} cuts the end of {of}. Set {instead}")
    return {
        "cutoff_len": chosen,
        "advised_cutoff": advised,
        "longest_row": longest,
        "rows": len(prompt),
        "prompts_cut": cut.prompt_cut,
        "rows_cut": cut.truncated,
        "counted_by": counted_by,
    }


def _lengths(
    resolution: ResolvedConfig, data: TrainingData, judgement: ConfigCheck, found: PreflightFindings
) -> tuple[TokenCounts, TokenCounts, str] | None:
    """Tokens of prompts and longer replies: by the model's own tokenizer if it is here, else counted as in the
    audit. None without rows that can be counted."""
    if judgement.prompt and judgement.reply:
        return np.asarray(judgement.prompt), np.asarray(judgement.reply), "the model's own tokenizer"
    rows = resolution.countable
    if rows is None and resolution.stage in RANKED_STAGES and not resolution.entry.of_tools:
        rows = next((each.countable for each in data.entries.values() if each.ranked and each.countable), None)
    if rows is None or not all(Path(file).is_file() for file in rows.files):
        return None
    counter, warnings = token_counter()
    found.notes += warnings
    counted: dict[str, int] = {}
    prompts, replies = [], []
    for row in (row for file in rows.files for row in rows_in(Path(file))):
        texts = {"instruction": str(row.get(rows.system) or ""), "input": str(row.get(rows.prompt) or "")}
        try:
            shown = messages_of(texts | {"history": row.get(rows.history or "")})
            asked = [Message.model_validate(each) for each in shown]
        except (TypeError, ValueError) as error:
            raise InputError(f"{rows.files[0]}: {rows.history} holds something else than turns and replies") from error
        if (key := repr(asked)) not in counted:
            counted[key] = counter.prompt(asked)
        prompts.append(counted[key])
        replies.append(max(counter.reply(str(row.get(name) or "")) for name in rows.replies))
    return (np.asarray(prompts), np.asarray(replies), counter.name) if prompts else None
