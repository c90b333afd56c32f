"""The command `reasonrag merge`, and what it hands to commands below; Ray is imported where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.exploration.commands import leave
from reasonrag.options import Json, options, print_result


class FromAbove:
    """What commands of lower floors are handed, in their context: what carries out `--on ray`, and trains critics."""

    @property
    def explore(self) -> Any:
        from reasonrag.scale.ray_ranks import explore_on_ray

        return explore_on_ray

    @property
    def encoding(self) -> Any:
        from reasonrag.scale.ray_encoding import RayEncoding

        return RayEncoding

    @property
    def train_critic(self) -> Any:
        from reasonrag.critics.train import train_critic

        return train_critic


@options(example="reasonrag merge runs/hotpotqa-train-economy")
def merge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that was the --run of ranks (--shard i/n)")],
    *,
    as_json: Json = False,
) -> None:
    """Join the ranks of a run, once all have ended, into what one process would have made.

    Exit status 1: some question has no tree; 2: ranks are missing or incomplete; 3: a cap stopped ranks: what is left
    of it is said, and the command that finishes the run.
    """
    from reasonrag.scale.merge import merge as merge_ranks
    from reasonrag.terminal import TerminalWatcher

    merged = merge_ranks(run, watcher=TerminalWatcher())
    print_result(merged, merged.shown(), as_json=as_json)
    leave(merged.summary.stopped, failed=merged.summary.failed)
