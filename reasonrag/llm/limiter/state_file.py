"""The limiter of one run and its file, RUN/limiter.jsonl: what each rank may have spent, so that nothing is spent twice
after the limiter was killed.

A line is `{"rank", "spent", "allowed"}`, both as calls, tokens and dollars; the last one of a rank counts. It is
written before the lease is given. Decides what a limiter that starts believes: of each rank the file or its journal,
whichever says more. Does not know how reports come.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from preference.export.files import atomic_replacement, open_private
from reasonrag.errors import InputError
from reasonrag.files import JOURNAL, append_durably, locked, numbered_lines, storing, writing
from reasonrag.llm.budget import Amount, Caps, Tokens
from reasonrag.llm.journal import open_journal
from reasonrag.llm.limiter.limiter import Account, Lease, Limiter, RankName, Rates, Report, Total
from reasonrag.ranks import RANKS

STATE = "limiter.jsonl"
MOST_STATE_BYTES = 1 << 24
"""The file is written anew, with one line for each rank, when it has grown by so much."""
_LONGEST_LINE = 1000


class _Line(BaseModel):
    rank: RankName
    spent: Total
    allowed: Total


class KeptLimiter:
    """A limiter whose grants are in its file; a `LimiterTransport` within its process. Made by `open_limiter`.

    clock: in seconds. most_bytes: by how much the file grows before it is written anew.
    """

    shown, own_command = "this process", False

    def __init__(
        self, path: Path, limiter: Limiter, clock: Callable[[], float], *, most_bytes: int = MOST_STATE_BYTES
    ) -> None:
        self.path, self.limiter, self._clock, self._growth = path, limiter, clock, most_bytes
        with writing(path):
            self._write_anew()

    async def lease(self, report: Report) -> Lease:
        """The answer to a report, once it is on record. Raises StorageError if that fails, and InputError as the
        limiter does."""
        lease = self.limiter.lease(report, self._clock())
        if lease.counted:
            line = _line(report.rank, self.limiter.accounts[report.rank])
            with storing(self.path, "Make room: nothing is lent until then"):
                if self._size > self._most:
                    self._file.close()
                    self._write_anew()
                append_durably(self._file.fileno(), line, end=self._size, sync=False)
            self._size += len(line)
        return lease

    def summary(self) -> dict[str, Any]:
        """Caps, and what all ranks have spent of them."""
        caps, spent = self.limiter.caps, self.limiter.spent(self._clock())
        return {
            "ranks": len(self.limiter.accounts),
            "spent": spent._asdict(),
            "caps": {"calls": caps.calls, "tokens": caps.tokens, "dollars": caps.cost},
        }

    def close(self) -> None:
        self._file.close()

    def _write_anew(self) -> None:
        with atomic_replacement(self.path) as file:
            file.writelines(_line(name, each) for name, each in self.limiter.accounts.items())
        self._file = open_private(self.path, "ab", buffering=0)
        self._size = self._file.tell()
        self._most = self._size + self._growth


def _line(rank: str, account: Account) -> bytes:
    return orjson.dumps({"rank": rank, "spent": [*account.spent], "allowed": [*account.allowed]}) + b"\n"


@asynccontextmanager
async def open_limiter(
    run: Path, caps: Caps, rates: Rates, *, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[KeptLimiter]:
    """The limiter of a run, which goes on where an earlier one ended. Raises InputError if another one is at work, or
    a file is unreadable."""

    def taken() -> None:
        raise InputError(f"a limiter of {run} is running already; stop that one, or use it")

    with locked(run / ".limiter.lock", run, taken):
        accounts = _read(run / STATE)
        async for rank, delivered_by in _journals(run):
            account = accounts.setdefault(rank, Account())
            total = sum(delivered_by.values(), start=Tokens())
            account.spent = account.spent.at_least(Amount(total.calls, total.prompt + total.completion))
            account.allowed = account.allowed.at_least(account.spent)
            account.journaled = {
                name or "": (each.prompt, each.completion, each.cached) for name, each in delivered_by.items()
            }
        kept = KeptLimiter(
            run / STATE, Limiter(caps, rates, accounts, first_turn=1 + secrets.randbits(48), now=clock()), clock
        )
        try:
            yield kept
        finally:
            kept.close()


def _read(path: Path) -> dict[str, Account]:
    """The accounts in the file. Raises InputError for a line that is none, but for a last one that was cut off: its
    lease was never given."""
    accounts = dict[str, Account]()
    with suppress(FileNotFoundError), path.open("rb") as file:
        for number, line in numbered_lines(path, file, _LONGEST_LINE):
            if not line.endswith(b"\n"):
                break
            try:
                found = _Line.model_validate_json(line)
            except ValidationError as error:
                raise InputError(
                    f"{path}, line {number} is not a limiter's. Delete the line; what its rank has spent is in its "
                    "journal"
                ) from error
            accounts[found.rank] = Account(found.spent, found.allowed)
    return accounts


async def _journals(run: Path) -> AsyncIterator[tuple[str, dict[str | None, Tokens]]]:
    """What each rank's journal says was delivered, by model. Raises InputError."""
    for path in sorted((run / RANKS).glob(f"*/{JOURNAL}")):
        async with open_journal(path, wanted=lambda _: False, writable=False) as journal:
            yield path.parent.name, journal.delivered_by
