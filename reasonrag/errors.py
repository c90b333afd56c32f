"""What can go wrong, and who is told.

    ReasonragError            shown without a traceback
    ├── InputError            the user's input is wrong; nothing was started; exit status 2
    ├── ModelError            an endpoint gave no answer; recorded as the question's error
    ├── RetrievalError        passages could not be searched; recorded as the question's error
    ├── OutcomeError          a user's function could not value an answer; recorded as the question's error
    └── RunStopped            the run ends here, what was paid for is kept, the same command goes on
        ├── CapReached        more would cross a cap; exit status 3
        ├── Interrupted       Ctrl-C; exit status 130
        ├── DegenerateRun     the trees teach nothing; exit status 1
        ├── EndpointLost      no endpoint answers, or the account does not let us in any more; exit status 1
        └── StorageError      answers cannot be written down; exit status 1

Every message says what is wrong, where, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ReasonragError(Exception):
    """Base of all errors that are meant to be read by a user. `cause` is one word for counting."""

    cause = "error"


class InputError(ReasonragError):
    """Wrong flag, file, data set or run directory; raised before any work is started."""

    cause = "input"


class ModelError(ReasonragError):
    """A request that stayed without an answer after all retries, or can never have one."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class RetrievalError(ReasonragError):
    """A search over passages that could not be done."""

    cause = "retrieval"


class OutcomeError(ReasonragError):
    """A user's function that did not say what an answer is worth."""

    cause = "outcome"


class RunStopped(ReasonragError):
    """Why a run ends before its questions do."""

    cause = "stopped"
    exit_status = 1


class CapReached(RunStopped):
    """A cap that the next request could cross. `cap`: the setting's name. `needed`: a value it could not cross."""

    cause = "cap"
    exit_status = 3

    def __init__(self, cap: str, message: str, *, needed: float = 0.0) -> None:
        super().__init__(f"--{cap.replace('_', '-')}: {message}; the next request could cross it")
        self.cap = cap
        self.needed = needed

    @property
    def raised(self) -> dict[str, str]:
        """The flag and a value with which there is room to go on."""
        enough = 2 * self.needed
        return {f"--{self.cap.replace('_', '-')}": f"{enough:.2f}" if self.cap == "max_cost" else f"{enough:.0f}"}


class Interrupted(RunStopped):
    """Somebody pressed Ctrl-C."""

    cause = "interrupted"
    exit_status = 130


class DegenerateRun(RunStopped):
    """Nearly every tree shows a sign that it teaches nothing."""

    cause = "degenerate"

    def __init__(self, sign: str) -> None:
        super().__init__(f"{sign}. To go on regardless: --abort-degenerate 0")


class EndpointLost(RunStopped):
    """No endpoint answers for a long time, or the account is refused in the middle of a run."""

    cause = "endpoint_lost"


class StorageError(RunStopped):
    """An answer could not be written down, so none may be asked for."""

    cause = "journal"


def choices(wrong: str, valid: Iterable[str]) -> str:
    """` (did you mean x?)`-style help for a wrong name: the nearest valid one first, then all of them."""
    names = sorted(valid)
    nearest = difflib.get_close_matches(wrong, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{hint}choose from {', '.join(names)}"
