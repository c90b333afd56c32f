"""Checks of dense indexes against their manifest: hashes and rows."""

from __future__ import annotations

from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build_progress import BuildWatcher
from reasonrag.retrieval.dense.faiss_index import open_faiss_index
from reasonrag.retrieval.dense.index import stored_vectors
from reasonrag.retrieval.dense.manifest import DenseManifest, damaged_files


def check_dense(directory: Path, manifest: DenseManifest, watcher: BuildWatcher) -> dict[str, str]:
    """Faults of an index's files, by file."""
    watcher.say(f"reading the files of {directory}")
    faults = damaged_files(directory, manifest, manifest.all_files)
    vectors = manifest.vectors or manifest.read_back_from or ""
    try:
        if vectors not in faults:
            stored_vectors(directory, manifest)
    except InputError as error:
        faults[vectors] = str(error)
    for file in manifest.indexes.values():
        if file.file in faults:
            continue
        try:
            opened = open_faiss_index(directory / file.file, file.plan)
        except InputError as error:
            faults[file.file] = str(error)
            continue
        if (opened.rows, opened.dimension) != (manifest.passages, manifest.encoder.dimension):
            what = f"has {opened.rows:,} rows, the manifest says {manifest.passages:,}"
            faults[file.file] = f"{directory / file.file} {what}. {manifest.remedy(directory, file.file)}"
    return faults
