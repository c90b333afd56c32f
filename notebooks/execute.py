"""Runs notebooks and keeps their outputs in them: `make notebooks`.

Keeps what a reader wants, and only what another run would give again: no times, no versions of the kernel.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent


def execute(path: Path, out: Path) -> None:
    """Run a notebook in a kernel of its own, in the directory `out`, and write it there with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    metadata = dict(notebook.metadata)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("REASONRAG_")}
    client = NotebookClient(
        notebook, timeout=600, record_timing=False, coalesce_streams=True, resources={"metadata": {"path": str(out)}}
    )
    client.execute(
        env=mine
        | {name: os.environ[name] for name in ("REASONRAG_TRAIN_PYTHON",) if name in os.environ}
        | {
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",  # numbers of a GPU would be others
            "PYTHONWARNINGS": "ignore:IProgress not found",  # of tqdm, which some dependency imports
        }
    )
    notebook.metadata = metadata
    nbformat.write(notebook, out / path.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks to run (all)")
    parser.add_argument("--out", type=Path, default=NOTEBOOKS, help="directory of the results (that of the notebooks)")
    asked = parser.parse_args()
    for each in asked.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        print(each.name, flush=True)
        execute(each, asked.out)
