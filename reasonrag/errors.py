"""The errors a user may see, and how each is reported.

    ReasonragError            shown without a traceback
    ├── InputError            the user's input is wrong; nothing was started; exit status 2
    │   └── NothingToLearn    a data set has no row that teaches anything
    ├── ModelError            an endpoint gave no answer; recorded as the question's error
    ├── RetrievalError        passages could not be searched; recorded as the question's error
    ├── OutcomeError          a user's function could not value an answer; recorded as the question's error
    └── RunStopped            the run ends here, paid answers are kept, the same command continues
        ├── CapReached        more would cross a cap; exit status 3
        ├── WaitTooLong       every endpoint has us wait longer than max_wait; exit status 3
        ├── Interrupted       Ctrl-C; exit status 130
        ├── DegenerateRun     the trees yield no training signal; exit status 1
        ├── EndpointLost      no endpoint answers, or the account is refused; exit status 1
        ├── StorageError      answers cannot be stored; exit status 1
        ├── UnexpectedError   a paid answer could not be accounted for: a bug; exit status 1
        └── UploadStopped     not everything is on the Hub; exit status 1

Every message says what is wrong, where, and what to do next.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reasonrag.redaction import excerpt

MOST_SHOWN = 300
"""Characters of an unexpected error's text that are shown."""


def first_line(error: BaseException) -> str:
    """Of a library's error, whose other lines are for its developers."""
    return excerpt(next(iter(str(error).strip().splitlines()), type(error).__name__), MOST_SHOWN)


class ReasonragError(Exception):
    """Base of all errors meant for users. `cause` is one word for counting."""

    cause = "error"


class InputError(ReasonragError):
    """Wrong flag, file, data set or run directory; raised before any work is started. instead: flags that may help."""

    cause = "input"
    instead: dict[str, str] | None = None


class NothingToLearn(InputError):
    """A data set without a row that teaches anything."""


class ModelError(ReasonragError):
    """A request without an answer after all retries, or one that can never be answered. of_prompt: the endpoint
    answers others, and rejects this prompt."""

    def __init__(self, message: str, *, cause: str, of_prompt: bool = False) -> None:
        super().__init__(message)
        self.cause, self.of_prompt = cause, of_prompt


class RetrievalError(ReasonragError):
    """A search over passages that failed. of_query: the retriever answers others, and rejects this query."""

    cause = "retrieval"

    def __init__(self, message: str, *, of_query: bool = False) -> None:
        super().__init__(message)
        self.of_query = of_query


class OutcomeError(ReasonragError):
    """A user's outcome function that failed or gave no valid value."""

    cause = "outcome"


class RunStopped(ReasonragError):
    """Ends a run before all its questions are done."""

    cause = "stopped"
    exit_status = 1
    raised: dict[str, str] | None = None
    """A flag and a value of it that leaves room to continue."""


class CapReached(RunStopped):
    """The next request could exceed a cap. `cap`: the setting's name."""

    cause = "cap"
    exit_status = 3

    def __init__(self, cap: str, message: str, *, needed: float = 0.0) -> None:
        enough = f"{2 * needed:.2f}" if cap == "max_cost" else f"{2 * needed:.0f}"
        flag = f"--{cap.replace('_', '-')}"
        super().__init__(f"{flag}: {message}; the next request could cross it")
        self.cap, self.raised = cap, {flag: enough}


class WaitTooLong(RunStopped):
    """No endpoint is of use before max_wait is over; the same command continues later."""

    cause = "max_wait"
    exit_status = 3


class Interrupted(RunStopped):
    """The user pressed Ctrl-C."""

    cause = "interrupted"
    exit_status = 130


class DegenerateRun(RunStopped):
    """Nearly every tree shows a sign of degeneracy and can give no pair."""

    cause = "degenerate"

    def __init__(self, sign: str) -> None:
        super().__init__(f"{sign}. To continue anyway: --abort-degenerate 0")
        self.raised = {"--abort-degenerate": "0"}


class EndpointLost(RunStopped):
    """No endpoint has answered for a long time, or the account was refused during a run."""

    cause = "endpoint_lost"


class StorageError(RunStopped):
    """An answer could not be stored, so no more may be requested."""

    cause = "journal"


class UnexpectedError(RunStopped):
    """A bug after an answer was paid. No more is requested, since what is spent may be counted wrong."""

    cause = "internal"

    def __init__(self, error: Exception, *, kept: bool) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" in {Path(each.filename).name}, line {each.lineno}" for each in place)
        stored = "This answer and all others are kept" if kept else "All earlier answers are kept"
        super().__init__(
            f"a paid answer could not be accounted for: {type(error).__name__}{where}: "
            f"{excerpt(str(error), MOST_SHOWN)}. {stored}; nothing more is requested. This is a bug in reasonrag: "
            "please report it. The same command continues the run"
        )


class UploadStopped(RunStopped):
    """The Hub refused an upload or became unreachable; files already there are not sent again."""

    cause = "upload"


@contextmanager
def needs_extra(extra: str, what: str, otherwise: str = "") -> Iterator[None]:
    """Imports packages of an extra. Raises InputError: `what` needs it, and how to install it, or do `otherwise`."""
    try:
        yield
    except ImportError as error:
        raise InputError(f"{what} needs the {extra} extra: pip install 'reasonrag[{extra}]'{otherwise}") from error


def choices(wrong: str, valid: Iterable[str]) -> str:
    """Help for a wrong name: `did you mean x?` with the nearest valid one, then all of them."""
    names = sorted(valid)
    nearest = difflib.get_close_matches(wrong, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{hint}choose from {', '.join(names)}"
