"""Settings of other authors that run code, send data out, or read what no check has seen.

Decides which keys these are: of a configuration, of files that it names, of dataset_info.json, and of a model's folder.
The keys are those of LLaMA-Factory 0.9.5, transformers 4.55 to 5.6, TRL 1.16 and DeepSpeed. Loads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from reasonrag.curation.publish_blockers import Blocker
from reasonrag.model_folder import code_in, pickles_in, read_json
from reasonrag.processes.children import HUB_TOKENS, hub_tokens
from reasonrag.training.llamafactory.config_files import models_in

_CODE, _OUT, _UNSEEN = "runs code of others", "sends data out", "reads what no check has seen"
FOREIGN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("trust_remote_code", "custom_*", "*plugin*", "script_url"), _CODE),
    **dict.fromkeys(("push_to_hub*", "hub_model_id", "export_hub_*", "report_to", "trackio_*", "use_swanlab"), _OUT),
    **dict.fromkeys(("swanlab_*", "wandb", "comet", "ray_init_kwargs", "ray_storage_filesystem", "master_addr"), _OUT),
    **dict.fromkeys(("hf_hub_url", "ms_hub_url", "om_hub_url", "cloud_file_name", "tokenized_path"), _UNSEEN),
    **dict.fromkeys(("media_dir", "adapter_folder", "chat_template_path"), _UNSEEN),
    **dict.fromkeys(("resume_from_checkpoint", "kt_*_path", "export_quantization_dataset"), _UNSEEN),
}
"""Keys, and what they do. A folder for downloads, of results or of settings to generate with is none; an address is."""
_LOCAL_REPORTS: Final = re.compile(r"(none|tensorboard|[\[\]',\s])*")
_SERVICES: Final = ("wandb", "comet", "mlflow", "neptune", "clearml", "swanlab")
"""That trainings report to; so begin the names of their secrets."""
_FILES: Final = ("deepspeed", "fsdp_config", "accelerator_config", "hyper_parallel_args")
"""Keys that may name a JSON file of further settings."""


def foreign_keys(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of FOREIGN that are in use, at any depth, each with what it does; and keys of addresses."""
    for name, value in values.items():
        key = str(name).lower().replace("-", "_")
        does = next((what for pattern, what in FOREIGN.items() if fnmatchcase(key, pattern)), None)
        on = value.get("enabled", bool(value)) if isinstance(value, Mapping) else value
        if does and on and not (key == "report_to" and _LOCAL_REPORTS.fullmatch(str(value))):
            yield key, f"{key}: {str(value)[:80]} {does}"  # `false` as text too: LLaMA-Factory takes it for true
        elif address := next((each for each in _items(value) if isinstance(each, str) and "://" in each), ""):
            yield key, f"{key}: {address[:80]} is an address: it {_OUT} or {_UNSEEN}"
        for each in _items(value):
            yield from foreign_keys(each) if isinstance(each, Mapping) else ()


def _items(value: object) -> Iterator[object]:
    """What a list holds, at any depth, or the value itself."""
    for each in value if isinstance(value, list) else ():
        yield from _items(each)
    if not isinstance(value, list):
        yield value


def foreign_settings(config: Mapping[str, Any]) -> list[Blocker]:
    """What a configuration would have done by others: its keys, those of the files that it names, and what is in the
    folders of its models. Raises InputError for such a file that cannot be read."""
    found = list(foreign_keys(config))
    for path in filter(Path.is_file, (Path(str(config.get(key) or "")) for key in _FILES)):
        found += [(key, f"{path}: {what}") for key, what in foreign_keys(read_json(path))]
    for key, name in models_in(config):
        folder = Path(name).expanduser()
        if folder.is_dir():
            files = code_in(folder, trusted=bool(config.get("trust_remote_code")))
            found += [(named, f"{file}: {named} {_CODE}") for file, named in files]
            found += [("pickled_weights", f"{file} is a pickle, which can run code") for file in pickles_in(folder)]
        elif key != "model_name_or_path":
            found.append((key, f"{key}: {name} is not on this machine: it {_UNSEEN}"))
    return [Blocker("--allow", key, what) for key, what in dict.fromkeys(found)]


def tokens_for(config: Mapping[str, Any]) -> list[str]:
    """How the names of secrets begin that a training needs: of the Hub, and of the services that it reports to."""
    reports = f"{config.get('report_to')} {'swanlab' if config.get('use_swanlab') else ''}"
    pushes = HUB_TOKENS if config.get("push_to_hub") or "trackio" in reports else ()
    needed = [f"{each.upper()}_" for each in _SERVICES if each in reports]
    return [*pushes, *hub_tokens(*(name for _, name in models_in(config))), *needed]
