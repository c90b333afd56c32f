"""Terminal output of `publish`: the files and where they are."""

from __future__ import annotations

import sys
from pathlib import Path

from reasonrag.publishing.publish import Publication
from reasonrag.publishing.publish_model import ModelPublication
from reasonrag.redaction import redact
from reasonrag.rendering import counted
from reasonrag.terminal import print_prose, print_shown, print_table
from reasonrag.training.model_card import CARD


def say(message: str) -> None:
    """Progress, on stderr."""
    print_prose(redact(message), file=sys.stderr)


def show_publication(done: Publication | ModelPublication) -> None:
    """The files with their sizes, blockers that were set aside, and the next commands."""
    rows = [(each.path, f"{each.bytes:,} bytes") for each in done.files]
    rows += [(path, "removed; was in an earlier version") for path in done.removed]
    what = counted(done.pairs, "pair") if isinstance(done, Publication) else done.kind
    print_table(f"{done.repo}  {what}  licence {done.licence}", rows)
    for each in done.warnings:
        say(f"warning: {each}")
    if done.set_aside:
        print_shown(f"allowed: {', '.join(done.set_aside)}")
    if isinstance(done, ModelPublication) and done.left_behind:
        print_shown(f"not uploaded: {', '.join(done.left_behind)}")
    print_shown(f"card: {Path(done.folder) / CARD}")
    if done.dry_run:
        print_prose("nothing was uploaded; the same command without --dry-run publishes these files")
        return
    print_shown(f"{'private' if done.private else 'public'}: {done.url}")
    if isinstance(done, Publication):
        print_shown(f'load it: datasets.load_dataset("{done.repo}")')
        print_shown(f"train on it: dataset_dir: REMOTE:{done.repo}, dataset: rag_proguide, template: qwen")
    elif done.kind == "adapter":
        print_shown(f"serve it: vllm serve {done.base_model} --enable-lora --lora-modules student={done.repo}")
    else:
        print_shown(f"serve it: vllm serve {done.repo}")
