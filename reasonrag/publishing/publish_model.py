"""`reasonrag publish --model`: publishes an adapter or a whole model on the Hub, with its card.

Decides which files of a training's folder belong to the model (an allow-list: safetensors weights, configuration,
tokenizer, card, provenance and prompts), what blocks publishing it, and what is rewritten so that it loads elsewhere
and contains no local paths. Weights are linked into `FOLDER/publish`, not copied. Uploading is done by `hub`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from preference.export.private_files import write_json
from reasonrag.curation.publish_blockers import Blocker
from reasonrag.errors import InputError
from reasonrag.files import link_or_copy, read_small_text
from reasonrag.model_folder import ADAPTER_CONFIG, CONFIG, PROVENANCE, ModelFolder, open_model, read_json
from reasonrag.publishing.licences import UNKNOWN
from reasonrag.publishing.staging import refuse_links_out
from reasonrag.publishing.upload import PublicationResult, RepositoryKind
from reasonrag.redaction import keys_in, secrets
from reasonrag.rendering import Part
from reasonrag.training.model_card import CARD, front_matter_of
from reasonrag.training.provenance import Provenance, find_provenance, read_provenance

_WEIGHTS = re.compile(
    r"(?:model|adapter_model|value_head)(?:-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
)
_VOCABULARY = frozenset({"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model"})
_CONFIGURATION = frozenset(
    f"{CONFIG} {ADAPTER_CONFIG} generation_config.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "chat_template.jinja chat_template.json".split()
)
_ABOUT = frozenset({CARD, PROVENANCE, "metrics.json", "train.yaml"})
"""Files about the model. Paths in them are shortened to names."""
_PROMPT = re.compile(r"prompts/(\w+\.txt|layout\.json)")
_PATHS_IN_CONFIGURATION = ("_name_or_path", "name_or_path", "tokenizer_file")
"""Keys in which older transformers record local paths; unused."""
_PATH = re.compile(r"(?<![\w./:<~-])~?/(?:[\w.@+-]+/)+([\w.@+-]+)/?")
_FORM = "more information needed"
"""Text in the unfilled card templates that peft and transformers write."""
_ON_THE_HUB = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)?")


def is_model_file(path: str) -> bool:
    """Whether a file of a model's folder is uploaded, by its path in the folder: what loads the model and what
    describes it. Never checkpoints, optimizer states, pickles or logs."""
    named = path in _VOCABULARY | _CONFIGURATION | _ABOUT
    return named or _WEIGHTS.fullmatch(path) is not None or _PROMPT.fullmatch(path) is not None


MODEL = RepositoryKind("model", "model", is_model_file)


class ModelPublication(PublicationResult):
    """A published model, or what a dry run would publish; the output of `publish --model --json`."""

    kind: Literal["adapter", "model"]
    base_model: str | None
    """Its name on the Hub; null if unknown."""

    def shown(self) -> Iterator[Part]:
        adapter = f"{self.base_model} --enable-lora --lora-modules student={self.repo}"
        served = adapter if self.kind == "adapter" else self.repo
        yield from self.parts(self.kind, f"serve it: vllm serve {served}")


class ModelToPublish:
    """A model's folder. base: its base model's name on the Hub; licence: its name there; None: as its files say."""

    def __init__(self, folder: Path, *, base: str | None, licence: str | None) -> None:
        self._model = open_model(folder)
        self.place = self._model.path
        if not self._model.weights[0].endswith(".safetensors"):
            raise InputError(
                f"{self.place} has pickled weights only ({self._model.weights[0]}), which can run code when they are "
                "loaded. Convert them to safetensors: load the model with transformers and call save_pretrained(FOLDER)"
            )
        self._provenance = read_provenance(self.place)
        self._base = _base_on_the_hub(self._model, self._provenance, base)
        self._files = _files_of(self.place)
        self._licence = licence
        self.traces, self.page = list[str](), b""  # a model has none

    def blockers(self) -> list[Blocker]:
        if self._provenance is None:
            what = f"{self.place / PROVENANCE} is missing, so readers cannot see what the model was trained on"
            found = [Blocker("--allow", "no_provenance", what)]
        else:
            what = "it was trained on questions of {}, which is not a training split: never evaluate on that split"
            splits = self._provenance.evaluation_splits
            found = [Blocker("--allow-eval", each, what.format(each)) for each in splits]
        scanned = (source for path, source in self._files.items() if not path.endswith((".safetensors", ".png")))
        keys = [place for source in scanned for place in places_of_keys(source)]
        if keys:
            more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
            found.append(Blocker("--allow", "secrets", f"{keys[0]}{more} holds a possible key"))
        return found

    def stage(self, folder: Path, aside: Sequence[Blocker]) -> list[str]:  # noqa: ARG002 - the card of a model has none
        names = {self._model.base_model, self._provenance.base_model if self._provenance else None}
        renamed = {  # bare names are left alone: templates contain them too
            name: self._base or Path(name).name for name in names if name and os.sep in name and not is_hub_name(name)
        }
        for path, source in self._files.items():
            _stage(source, folder / path, renamed)
        _stage_configuration(folder, self._base)
        self._write_card(folder / CARD)
        return [*(path for path in self._files if path != CARD), CARD]

    def _write_card(self, path: Path) -> None:
        """README.md: the one in the folder, with what was asked for. Raises InputError for a blank form."""
        from huggingface_hub import ModelCard

        own, written = self.place / CARD, read_small_text(path) if path.is_file() else ""
        if not written.strip() or _FORM in written.lower():
            raise InputError(
                f"{own} is missing or not filled in. train writes it when it ends; a checkpoint has none: copy that of "
                "its training, and correct its steps"
            )
        try:
            front_matter_of(written)  # huggingface_hub, which reads it next, sets no bounds
        except ValueError as error:
            raise InputError(f"the metadata of {own} cannot be read: {error}; correct its beginning") from error
        card = ModelCard(written, ignore_metadata_errors=True)
        card.data.base_model = self._base  # a folder's name would be a link to another user's model
        if self._licence is not None:
            card.data.license = self._licence
        path.write_text(str(card), "utf-8")
        self._licence = card.data.to_dict().get("license")

    def published(self, **facts: Any) -> ModelPublication:
        warnings = []
        if self._base is None:
            warnings.append("the card does not name the base model; give --base-model ORG/NAME")
        if self._licence is None:
            warnings.append("the card names no licence; give --license NAME, in most cases that of the base model")
        return ModelPublication(
            **facts,
            licence=str(self._licence or UNKNOWN),
            warnings=warnings,
            kind="adapter" if self._model.is_adapter else "model",
            base_model=self._base,
        )


def _base_on_the_hub(model: ModelFolder, provenance: Provenance | None, given: str | None) -> str | None:
    """The base model's name on the Hub. Raises InputError for an adapter whose base is only a local folder."""
    if given is not None:
        if not is_hub_name(given):
            raise InputError(f"--base-model {given!r} is not a name on the Hub; give it as organisation/name")
        return given
    told_base = model.base_model or (provenance.base_model if provenance else None)
    if told_base is not None and is_hub_name(told_base):
        return told_base
    if model.is_adapter:
        raise InputError(
            f"{model.path / ADAPTER_CONFIG} names {told_base or 'nothing'} as its base model, which is not on the Hub, "
            "so the adapter cannot be loaded elsewhere. If the base model is yours, publish it first; then give its "
            "name there: --base-model ORG/NAME"
        )
    return None


def is_hub_name(name: str) -> bool:
    """Whether a base model is a name on the Hub and not a local folder."""
    return _ON_THE_HUB.fullmatch(name) is not None and not Path(name).exists()


def places_of_keys(path: Path) -> Iterator[str]:
    """Places of lines with a possible key."""
    known = secrets()
    try:
        lines = path.read_bytes().decode("utf-8", "replace" if path.suffix == ".model" else "strict").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; it has to be scanned before it is published") from error
    for number, line in enumerate(lines, start=1):
        if keys_in(line, known):
            yield f"{path}, line {number}"


def _files_of(folder: Path) -> dict[str, Path]:
    """The files to upload, by their path in the repository; a checkpoint gets the provenance of its training. Raises
    InputError for links out of the folder."""
    found = [each for each in [*folder.iterdir(), *folder.glob("prompts/*")] if each.is_file()]
    files = {each.relative_to(folder).as_posix(): each for each in found}
    if about := find_provenance(folder):
        files[PROVENANCE] = about
    files = {path: files[path] for path in sorted(files) if is_model_file(path)}
    for path, source in files.items():
        refuse_links_out(source.parent if path == PROVENANCE else folder, [source])
    return files


def _stage(source: Path, target: Path, renamed: dict[str, str]) -> None:
    """Stage one file: weights, vocabulary and prompts unchanged, files about the model without local paths."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.name not in _ABOUT:
        link_or_copy(source, target)
        return
    text = source.read_text("utf-8")
    for local, name in renamed.items():  # but no path that merely starts with it
        text = name.join(re.split(rf"(?<![\w./~-]){re.escape(local)}(?![\w.-]*[\w-])", text))
    target.write_text(_PATH.sub(r"\1", text), "utf-8")


def _stage_configuration(folder: Path, base: str | None) -> None:
    """Remove local paths from the configuration; an adapter names its base model as on the Hub."""
    for path in (folder / CONFIG, folder / "tokenizer_config.json", folder / ADAPTER_CONFIG):
        if path.is_file():
            content = read_json(path)
            wanted = {key: each for key, each in content.items() if key not in _PATHS_IN_CONFIGURATION}
            if path.name == ADAPTER_CONFIG:
                wanted["base_model_name_or_path"] = base
            if wanted != content:
                write_json(path, wanted, shared=True)  # in place of a link to the original, which stays
