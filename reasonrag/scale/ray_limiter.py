"""The limiter of a run as an actor of a Ray cluster, and the way of its ranks to it.

Decides that the actor is started again wherever it dies, and goes on from the run's file. Does not know what is lent.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from reasonrag.errors import InputError, ReasonragError, first_line
from reasonrag.llm.budget import Caps
from reasonrag.llm.limiter.client import LimiterAway
from reasonrag.llm.limiter.limiter import Lease, Rates, Report
from reasonrag.llm.limiter.state_file import KeptLimiter, open_limiter

LEASES_AT_ONCE = 1000
"""Ray's own default for asynchronous actors; the others wait."""


class LimiterActor:
    """The limiter of a run, in a worker process of Ray. Opened with its first lease."""

    def __init__(self, run: str, caps: Caps, rates: Rates) -> None:
        self._run, self._caps, self._rates = Path(run), caps, rates
        self._opened = AsyncExitStack()
        self._limiter: KeptLimiter | None = None

    async def lease(self, report: str) -> tuple[str, str]:
        """The lease, or else why there is none."""
        try:
            if self._limiter is None:
                limiter = open_limiter(self._run, self._caps, self._rates)
                self._limiter = await self._opened.enter_async_context(limiter)
            lease = await self._limiter.lease(Report.model_validate_json(report))
        except ReasonragError as error:
            return "", str(error)
        return lease.model_dump_json(), ""


class RayLimiter:
    """A `LimiterTransport` to the actor."""

    shown, own_command = "the limiter of the Ray cluster", False

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def lease(self, report: Report) -> Lease:
        from ray.exceptions import RayError

        try:
            lease, error = await self._actor.lease.remote(report.model_dump_json())
        except RayError as away:
            raise LimiterAway(first_line(away)) from away
        if error:
            raise InputError(error)
        return Lease.model_validate_json(lease)


def start_limiter(ray: Any, run: Path, caps: Caps, rates: Rates) -> Any:
    """The actor, on some machine of the cluster; it needs no CPU of its own."""
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=LEASES_AT_ONCE)(LimiterActor)
    return actor.remote(str(run.absolute()), caps, rates)
