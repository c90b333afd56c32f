"""`reasonrag train --merge`: an adapter and its base model become one model that keeps the adapter's provenance.

LLaMA-Factory merges (`llamafactory-cli export`); `reasonrag.json`, prompts, metrics and card are carried over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference.export.private_files import write_file, write_json
from reasonrag.agent.prompting import PROMPTS, Prompts, load_prompts, prompts_beside, save_prompts
from reasonrag.curation.publish_blockers import refuse_unless_allowed
from reasonrag.errors import InputError
from reasonrag.files import read_small_text
from reasonrag.model_folder import ADAPTER_CONFIG, base_model_of
from reasonrag.processes.children import find_python
from reasonrag.progress import JobWatcher
from reasonrag.rendering import Line, Part, Shown
from reasonrag.training.llamafactory.config_files import as_yaml, changes_of
from reasonrag.training.llamafactory.config_resolution import TEMPLATE, refuse_secrets
from reasonrag.training.llamafactory.foreign_settings import foreign_settings, tokens_for
from reasonrag.training.llamafactory.launcher import cli_command, run_watched
from reasonrag.training.metrics import METRICS
from reasonrag.training.model_card import CARD
from reasonrag.training.output_directory import OutputDirectory
from reasonrag.training.provenance import Provenance, evaluation_of, read_provenance

MERGED = "merged.json"
_LOG, _YAML = "export.log", "export.yaml"
_OURS = (".lock", ".training", _LOG, _YAML)
"""Files that a failed attempt leaves behind."""


class MergeResult(BaseModel, Shown):
    """What was merged; the object of `train --merge --json`."""

    out: str
    adapter: str
    base_model: str

    def shown(self) -> Iterator[Part]:
        yield Line(f"merged {self.adapter} into {self.base_model}: {self.out}")
        yield evaluation_of(Path(self.out))


def merge_adapter(
    adapter: Path, out: Path | None, changes: Sequence[str], *, allow: Sequence[str], watcher: JobWatcher
) -> MergeResult:
    """Merge an adapter into `out`, a new or empty folder. changes: `key=value` for LLaMA-Factory's export. allow:
    objections to go on despite.

    Raises InputError before anything is written, TrainingFailed if LLaMA-Factory fails.
    """
    out = (out or adapter.with_name(f"{adapter.name}-merged")).resolve()
    if not (adapter / ADAPTER_CONFIG).is_file():
        raise InputError(f"{adapter} is not an adapter: there is no {adapter / ADAPTER_CONFIG}")
    base = base_model_of(adapter)
    if base is None:
        raise InputError(f"{adapter / ADAPTER_CONFIG} does not name its base model; --set model_name_or_path=..")
    of_both = {"model_name_or_path": base, "adapter_name_or_path": str(adapter.resolve()), "template": TEMPLATE}
    of_export = {"finetuning_type": "lora", "export_dir": str(out), "export_size": 5, "export_device": "cpu"}
    config: dict[str, Any] = of_both | of_export | changes_of(changes)
    refuse_secrets(config)
    refuse_unless_allowed(foreign_settings(config), allow=allow, allow_eval=(), therefore="not merged")
    came_from, beside = read_provenance(adapter), prompts_beside(adapter)
    prompts = load_prompts(beside) if beside else None
    base = config["model_name_or_path"]
    if Path(base).is_absolute() and not Path(base).is_dir():
        raise InputError(
            f"{adapter / ADAPTER_CONFIG} names the base model {base}, which is not there; --set model_name_or_path=.."
        )
    if out.is_dir() and any(path.name not in _OURS for path in out.iterdir()):
        raise InputError(f"{out} is not empty; choose another --out")
    python = find_python()
    with OutputDirectory(out).held():
        text = as_yaml(config, "What LLaMA-Factory's export read, by reasonrag train --merge.")
        write_file(out / _YAML, text.encode(), shared=True)
        watcher.say(f"merging into {out}")
        run_watched(
            cli_command(python, "export", out / _YAML, {}),
            "LLaMA-Factory's export",
            watcher,
            log=out / _LOG,
            python=python,
            environment={},
            tokens=tokens_for(config),
        )
        _account(adapter, out, config, came_from, prompts)
    return MergeResult(out=str(out), adapter=str(adapter), base_model=config["model_name_or_path"])


def _account(
    adapter: Path, out: Path, config: Mapping[str, Any], came_from: Provenance | None, prompts: Prompts | None
) -> None:
    """Carry the adapter's provenance, prompts, metrics and card over to the merged model."""
    if came_from:
        came_from.model_copy(update={"stage": "export", "finetuning_type": "merged"}).write(out)
    if prompts:
        save_prompts(prompts, out / PROMPTS, shared=True)
    if (adapter / METRICS).is_file():
        shutil.copyfile(adapter / METRICS, out / METRICS)
    write_json(out / MERGED, {"adapter": str(adapter.resolve()), "config": dict(config)}, shared=True)
    if (adapter / CARD).is_file():
        text = read_small_text(adapter / CARD)
        front, fence, body = text.partition("\n---\n")
        front = front.replace("library_name: peft", "library_name: transformers")
        note = f"\nMerged with its base model. The text below describes the adapter, `{adapter.resolve().name}`.\n"
        (out / CARD).write_text(f"{front}{fence}{note}{body}", "utf-8")
