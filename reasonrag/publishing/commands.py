"""The command `reasonrag publish`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.options import Json, options, print_result
from reasonrag.publishing.settings import PublishSettings
from reasonrag.rendering import Aside
from reasonrag.terminal import show


@options(PublishSettings, example="reasonrag publish data/hotpotqa-train-economy --repo my-org/my-data --dry-run")
def publish(
    context: typer.Context,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Data set made by pairs; not with --model")
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write all files and the card to DIR/publish; upload nothing")
    ] = False,
    space: Annotated[
        bool,
        typer.Option(
            "--space", help="Also put the page of reasonrag view up, trees included, as a static Space of the same name"
        ),
    ] = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Upload a data set or a trained model to the Hugging Face Hub, with its card; private by default.

    With --public the repository becomes public once the upload is complete.
    """
    from reasonrag.publishing.publish import publish as publish_data_set

    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # read when the client is imported
    view = context.obj.view if space else None
    done = publish_data_set(directory, dry_run=dry_run, view=view, say=lambda message: show([Aside(message)]), **flags)
    print_result(done, done.shown(), as_json=as_json)
