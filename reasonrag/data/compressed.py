"""Files in another form than JSONL: gzip, a file on the Hugging Face Hub, JSON lists and Parquet.

Passages and questions are read by offset, so such a file is rewritten once, into a folder of `indexes/` that is
complete once it has a `source.json`; from then on it is a plain file. Does not look into the rows: `corpus` and
`questions` do.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import orjson

from preference.export.private_files import atomic_replacement, write_json
from reasonrag.data.item_files import is_lines, read_rows
from reasonrag.errors import InputError, needs_extra
from reasonrag.files import build_lock, writing

Say: TypeAlias = Callable[[str], None]
"""Is told what people should know, a line at a time."""
SOURCE = "source.json"
CORPUS, ROWS = "corpus.jsonl", "rows.jsonl"
_GZIP = b"\x1f\x8b"
_ON_THE_HUB = re.compile(r"hf:/+(?:datasets/)?(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>.+))?")
WIKI_18 = "hf://datasets/PeterJinGo/wiki-18-corpus/wiki-18.jsonl.gz"
"""Wikipedia 2018 in FlashRAG's form, as Search-R1 hands it out; `--corpus wiki-18` names it."""
_BLOCK = 1 << 20
MOST_TIMES, _SMALL = 200, 1 << 26
"""Highest ratio of compression of files that unpack to more than 64 MiB. English text has 3 to 5, gzip up to 1,000."""


def plain_corpus(source: Path, home: Path, *, say: Say = lambda _: None) -> Path:
    """The corpus as a plain JSONL file: itself, or its copy below `home`, written now or earlier. See `plain_file`."""
    return as_lines(plain_file(source, home, say=say), home, say=say)


def as_lines(source: Path, home: Path, *, say: Say) -> Path:
    """A JSON list or a Parquet file as JSONL, one row per line; JSONL is returned as it is.

    A row without `id` and `_id` gets its number, from 0. Raises InputError naming a row that cannot be read.
    """
    if is_lines(source):
        return source

    def write(target: IO[bytes]) -> None:
        unnamed = 0
        for number, row in enumerate(read_rows(source)):
            named = row.get("id") is not None or "_id" in row
            unnamed += not named
            try:
                target.write(orjson.dumps(row if named else row | {"id": str(number)}, default=str) + b"\n")
            except orjson.JSONEncodeError as error:
                raise InputError(f"{source}, row {number + 1:,} is nested too deeply; correct it") from error
        if unnamed:
            say(f"{source}: rows without an id have their number, from 0, as id: {unnamed:,}")

    beginning = source.name.split(".")[0]
    return kept(home, beginning, _version(source), write, say=say, doing=f"rewriting {source}", name=ROWS)


def plain_file(source: Path, home: Path, *, say: Say = lambda _: None) -> Path:
    """A file that is not compressed: itself, or its copy unpacked below `home`, now or earlier.

    source: a file, `wiki-18`, or `hf://datasets/ORG/NAME[@REVISION]/FILE`. Raises InputError if it is missing or
    damaged, or the Hub cannot be used.
    """
    if there := on_the_hub(source):
        name, revision, file = there.group("name", "revision", "file")
        if not file:
            raise InputError(f"hf://datasets/{name} names no file; give hf://datasets/{name}/FILE")
        say(f"fetching {file} of {name} from the Hub")
        source, _ = fetched(name, file, revision=revision or "main")
    if not source.is_file():
        if source.is_dir():
            raise InputError(f"{source} is a folder, and a corpus is a file; make one: reasonrag corpus build {source}")
        raise InputError(f"there is no corpus {source}")
    with source.open("rb") as opened:
        packed = opened.read(len(_GZIP)) == _GZIP
    return _unpacked(source, home, say=say) if packed else source


def on_the_hub(source: Path) -> re.Match[str] | None:
    """The parts of a corpus' address on the Hub; None for a file."""
    named = str(source)
    return _ON_THE_HUB.fullmatch(WIKI_18 if named == "wiki-18" and not source.exists() else named)


def _unpacked(source: Path, home: Path, *, say: Say) -> Path:
    size = source.stat().st_size

    def unpack(target: IO[bytes]) -> None:
        try:
            with gzip.open(source) as lines:
                while block := lines.read(_BLOCK):
                    if target.tell() > max(_SMALL, MOST_TIMES * size):
                        raise InputError(
                            f"{source} unpacks to more than {MOST_TIMES} times its size, which text never does; check "
                            "the file, or unpack it yourself"
                        )
                    target.write(block)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{source} is damaged or truncated ({error}); download it again") from error

    return kept(home, source.name.split(".")[0], _version(source), unpack, say=say, doing=f"unpacking {source}")


def _version(source: Path) -> dict[str, Any]:
    stat = source.stat()
    return {"source": str(source.resolve()), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def fetched(name: str, file: str, *, revision: str = "main", otherwise: str = "") -> tuple[Path, str | None]:
    """A file of a data set on the Hub, and its commit. otherwise: what to give instead. Raises InputError if the
    Hub cannot be used."""
    with needs_extra("hub", f"{file} of {name} is on the Hub, which", f". Or {otherwise}" if otherwise else ""):
        from huggingface_hub import HfApi, hf_hub_download
    try:
        commit = HfApi().dataset_info(name, revision=revision).sha
        return Path(hf_hub_download(name, file, repo_type="dataset", revision=commit)), commit
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")  # some have several lines
        raise InputError(
            f"cannot fetch {file} of {name} from the Hub: {said}. Check the name and the network"
            + (f", or {otherwise}" if otherwise else "")
        ) from error


def kept(
    home: Path,
    beginning: str,
    origin: dict[str, Any],
    write: Callable[[IO[bytes]], object],
    *,
    say: Say,
    doing: str,
    name: str = CORPUS,
) -> Path:
    """The file that `write` produces, in a folder below `home` named after its origin's source; written only once.

    doing: what `say` is told. `source.json` is written last: a folder that has it is complete.
    """
    mark = hashlib.sha256(origin["source"].encode()).hexdigest()[:8]
    folder = home / f"{beginning}-{mark}"
    with build_lock(folder, say=say), writing(f"into {folder}; set another index_home"):
        with suppress(OSError, orjson.JSONDecodeError):
            if orjson.loads((folder / SOURCE).read_bytes()) == origin and (folder / name).is_file():
                return folder / name
        say(f"{doing} into {folder / name}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SOURCE).unlink(missing_ok=True)
        try:
            with atomic_replacement(folder / name, shared=True) as target:
                write(target)
        finally:
            with suppress(OSError):
                folder.rmdir()  # empty after an error
        write_json(folder / SOURCE, origin, shared=True)
    return folder / name
