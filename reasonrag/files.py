"""Durable appends, folders locked for one writer, and the names of a run's files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path
from time import sleep
from typing import BinaryIO, TypeVar

import orjson
from filelock import lock_descriptor
from pydantic import BaseModel, ValidationError

from preference.export.atomic_export import is_unfinished
from preference.export.json_stream import LONGEST_ITEM
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.records import first_error
from reasonrag.errors import InputError, StorageError

CONFIG, ROLLOUTS, FAILURES, JOURNAL = "config.json", "rollouts.jsonl", "failures.jsonl", "journal.jsonl"
_Parsed = TypeVar("_Parsed")
_Model = TypeVar("_Model", bound=BaseModel)
VIEW_PAGE, PREDICTIONS, EVALUATION_REPORT = "view.html", "predictions.jsonl", "report.json"
"""The page that `view` writes beside what it shows; what `evaluate` writes of each question, and of all."""
PASSAGES = "passages.jsonl"
"""Those that predictions show, each once, as a corpus has them."""
ANSWERED = "answered.jsonl"
"""Predictions of an evaluation that goes on, in the order in which they came; its end removes them."""
TUNING, TRIALS, COMPARISON = "tuning.json", "trials", "compare.json"
"""Files of a `tune` directory, which has no rollouts, and of a comparison."""
CALIBRATION, CALIBRATION_REPORT, ROWS_REPORT = "calibration", "report.json", "rows.json"
"""Folder of `calibrate` below a run; its reports on the run's labels, and on rows, which may be labelled otherwise."""
RUN_HOME, DATA_HOME, EVALUATION_HOME = Path("runs"), Path("data"), Path("evals")
"""Where runs, data sets and evaluations are written that are given no other place."""
_MANIFESTS = (
    CONFIG,
    QUESTIONS,
    CANDIDATES,
    *("audit.json", "manifest.json", "reasonrag.json", "report.json", "compare.json"),
)
LOOK_AGAIN_S = 0.05
"""Until a lock that was taken is tried again: `is_written` may have held it."""
_MARKS, _BEGINNING = (b'"reasonrag.', b'"config_hash"'), 1 << 16
"""What the beginning of such a file holds if reasonrag wrote it."""


def made_here(folder: Path) -> bool:
    """Whether reasonrag wrote a folder: a run, data set, evaluation, comparison, index or model has a manifest."""
    for name in _MANIFESTS:
        with suppress(OSError), (folder / name).open("rb") as file:
            beginning = file.read(_BEGINNING)
            if any(mark in beginning for mark in _MARKS):
                return True
    return False


@contextmanager
def only_writer(directory: Path, *, flag: str = "--run") -> Iterator[None]:
    """Lock a directory for writing, creating it if needed. Raises InputError if that fails, another process holds the
    lock, or a run would be written into a data set. flag: the flag that names the directory."""

    def taken() -> None:
        raise InputError(f"{directory} is being written by another reasonrag; wait for it or choose another {flag}")

    if flag == "--run" and (directory / CANDIDATES).exists():
        raise InputError(f"{directory} is a data set, whose summary would be overwritten; choose another --run")
    with locked(directory / ".lock", directory, taken):
        yield


def is_written(directory: Path) -> bool | None:
    """Whether another process is the `only_writer` of a directory now; None where that cannot be known. Holds the lock
    itself for some microseconds."""
    try:
        with (directory / ".lock").open("rb") as lock:
            return not lock_descriptor(lock.fileno(), blocking=False)
    except FileNotFoundError:  # it was never written to
        return False
    except OSError:  # not to be read, or a file system without locks
        return None


def rollouts_in(run: Path) -> Path:
    """The rollouts file of a run directory; a file is returned unchanged."""
    return run if run.is_file() else run / ROLLOUTS


def bytes_of(path: Path) -> int:
    """The size of a run, or of a data set without the runs it was made of."""
    return sum(each.stat().st_size for each in (rollouts_in(path), path / CANDIDATES) if each.is_file())


def names_of(places: Sequence[Path]) -> list[str]:
    """As many of the last parts of each as tell them apart; none where two are the same."""
    lengths = range(1, max((len(each.parts) for each in places), default=0) + 1)
    tried = (["/".join(each.parts[-length:]) for each in places] for length in lengths)
    return next((names for names in tried if len(set(names)) == len(names)), [])


def readable(path: str) -> str:
    """A path as text: names of files may hold bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def data_set_of(run: Path) -> Path:
    """Where `pairs` writes the data set of a run that is given no other place."""
    return DATA_HOME / (run.parent if run.name == ROLLOUTS else run).resolve().name


def check_finished(directory: Path) -> None:
    """Raises InputError for a data set whose files are being replaced, or were when the command was killed."""
    if is_unfinished(directory):
        raise InputError(
            f"{directory} is unfinished: the pairs or import command that writes it was killed or is still running. "
            "Give that command again to complete it"
        )


SMALL_FILE = 1 << 24
"""Largest settings, configuration, card, prompt or record file that is read, in bytes. Most have some kB;
the provenance of a model has about 40 bytes per training question."""


def read_small(path: Path, most: int = SMALL_FILE) -> bytes:
    """The content of a file. Raises OSError, and InputError if it has more than `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(
            f"{path} is larger than {most / 1e6:,.1f} MB, the limit for such files; check that it is the right file"
        )
    return content


def read_small_text(path: Path, most: int = SMALL_FILE) -> str:
    """`Path.read_text` in UTF-8. Raises OSError, UnicodeDecodeError, and InputError for more than `most` bytes."""
    return TextIOWrapper(BytesIO(read_small(path, most)), "utf-8").read()


def numbered_lines(path: Path, file: BinaryIO, longest: int = LONGEST_ITEM) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a file, from 1. Raises OSError, and InputError for a line above `longest` bytes, unread."""
    for number in count(1):
        line = file.readline(longest + 1)
        if len(line) > longest:
            raise InputError(
                f"{path}, line {number}: the line is longer than {longest // 10**6} MB; correct or remove it"
            )
        if not line:
            return
        yield number, line


def checked_lines(
    path: Path, parse: Callable[[bytes], _Parsed], say: Callable[[str], None], *, longest: int = LONGEST_ITEM
) -> Iterator[tuple[int, bytes, _Parsed]]:
    """Every line of a JSONL file of ours: its number, from 1, its bytes with a line break, and what `parse` makes of
    it, which raises ValueError for a line of another kind.

    say: is told of a last line that was cut off, which is left out. Raises InputError for any other wrong line.
    """
    with reading(path), path.open("rb") as file:
        for number, line in numbered_lines(path, file, longest):
            where = f"{path}, line {number}"
            try:
                parsed = parse(line)
            except ValueError as error:
                if not _is_torn(line):
                    raise InputError(f"{where} {error}. Restore the file, or remove the line") from error
                say(f"{where} was cut off while it was written; its {len(line):,} bytes are left out")
                return
            yield number, line.rstrip(b"\r\n") + b"\n", parsed


def _is_torn(line: bytes) -> bool:
    """Whether a line is the begin of one. Zeros are a lost block, which may have held more than the end of a line."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return not line.endswith(b"\n") and b"\0" not in line
    return False


def read_record(path: Path, kind: type[_Model], advice: str, *, most: int = SMALL_FILE) -> _Model | None:
    """The content of a JSON file that we wrote; None where it is not there. Raises InputError, which names the file,
    the key and what is wrong with it, and gives the advice."""
    try:
        return kind.model_validate(orjson.loads(read_small(path, most)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        why = first_error(error) if isinstance(error, ValidationError) else f"it is not JSON: {error}"
        raise InputError(f"{path} is damaged: {why}. {advice}") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_out_of(folder: Path, paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """The first of these paths in a folder that leads out of it by a symbolic link, and where it leads. In the Hub's
    cache, links to the `blobs` of the same repository stay inside."""
    home = folder.resolve()
    snapshots = home.parent
    is_cache = snapshots.name == "snapshots" and snapshots.parent.name.startswith(("models--", "datasets--"))
    own = (home, snapshots.parent / "blobs") if is_cache else (home,)
    targets = ((path, path.resolve()) for path in paths)
    return next((each for each in targets if not any(each[1].is_relative_to(place) for place in own)), None)


def link_or_copy(source: Path, target: Path) -> None:
    """A file under a second name, as a hard link where the file system can. Raises OSError."""
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def append_durably(descriptor: int, content: bytes, *, end: int, sync: bool = True) -> None:
    """Write all of `content` at the end of an unbuffered file and sync it; or leave the file ending at `end`.

    Raises OSError, for example if the disk is full.
    """
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if sync:
            os.fsync(descriptor)  # macOS has no fdatasync; the length has changed, so it would save nothing
    except BaseException:
        os.ftruncate(descriptor, end)
        raise


@contextmanager
def build_lock(directory: Path, *, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Lock `directory` for building, across processes; others wait, with a message. Raises InputError if that fails."""
    if not directory.name:
        raise InputError(f"{directory} cannot hold an index; give it a directory of its own")

    waiting = f"waiting for another process that builds {directory}"
    with locked(directory.with_name(f".{directory.name}.lock"), directory, lambda: say(waiting)):
        yield


@contextmanager
def locked(path: Path, directory: Path, taken: Callable[[], None]) -> Iterator[BinaryIO]:
    """Hold the lock of a file of `directory`, which is created with its folders. taken: called before waiting for
    another process, unless it raises."""
    with ExitStack() as opened:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = opened.enter_context(path.open("ab"))
            if not lock_descriptor(lock.fileno(), blocking=False):
                sleep(LOOK_AGAIN_S)
                if not lock_descriptor(lock.fileno(), blocking=False):
                    taken()
                    lock_descriptor(lock.fileno())
        except OSError as error:  # also a file system without locks
            raise unwritable(directory, error) from error
        yield lock


@contextmanager
def reading(what: object, *, missing: str | None = None) -> Iterator[None]:
    """Explain what cannot be read, by an InputError. missing: the message for a file that is not there."""
    try:
        yield
    except OSError as error:
        if missing and isinstance(error, FileNotFoundError):
            raise InputError(missing) from error
        raise InputError(f"cannot read {what}: {error.strerror or error}") from error


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Explain what cannot be written, by an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {what}: {error.strerror or error}") from error


@contextmanager
def storing(path: Path, advice: str = "Make room and run the same command again") -> Iterator[None]:
    """Explain why a running session cannot write what it has made, by a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}. {advice}") from error


def unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {directory}: {error.strerror or error}. Choose another place for it")
