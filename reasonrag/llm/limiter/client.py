"""A rank's side of the limiter: reports what it has spent and demands, and works by the leases it gets.

Decides when a rank reports, what it asks for, and how long it waits for a limiter that is away: nothing is sent beyond
the leases then. Pacing stays the endpoints' own, and budgeting the ledgers'. Does not know how the limiter divides.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from reasonrag.errors import CapReached, EndpointLost, InputError, RunStopped
from reasonrag.llm.budget import Amount, Caps, Ledger, cap_reached
from reasonrag.llm.endpoint.endpoint import MAX_DOWN_S, EndpointModel
from reasonrag.llm.endpoint.rate_limits import Pace
from reasonrag.llm.endpoint.trouble import seconds_text
from reasonrag.llm.limiter.limiter import LEASE_S, MOST_NAME, NOTHING, AddressReport, Lease, Rates, Report
from reasonrag.llm.models import Models
from reasonrag.redaction import excerpt
from reasonrag.rendering import one_line
from reasonrag.web.client import (
    LIMITER_PORT,
    LONGEST_RETRY_AFTER_S,
    HttpClient,
    http_address,
    open_session,
    read_body,
    shown_url,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

TOKEN_VARIABLE = "REASONRAG_LIMITER_TOKEN"  # noqa: S105 - its name, not its value
REPORT_S = 1.0
"""Seconds between two reports of a rank that works."""
SOONEST_S = 0.05
"""Between two reports of a rank that needs more at once: 20 a second."""
RETRY_S = 0.25
"""Between two reports of a rank that was not lent what it waits for, or got no answer."""
ANSWER_S = 3.0
"""Timeout of a report: an answer takes milliseconds, and a lease some seconds."""
AHEAD = 1.5
"""What is asked for ahead, in seconds of work as in the last one."""
MOST_LEASE_BYTES = 1 << 20
_MOST_SAID = 300
"""Characters of a limiter's error that are shown."""


class LimiterAway(Exception):
    """The limiter gives no answer now, and may later. The message says why."""


class LimiterTransport(Protocol):
    """Carries reports to a limiter."""

    shown: str
    """Where it is, for people."""
    own_command: bool
    """Whether its caps are flags of `reasonrag limiter`, not of the command that the ranks belong to."""

    async def lease(self, report: Report) -> Lease:
        """The limiter's answer. Raises LimiterAway if there is none now, InputError if there will be none."""
        ...


@asynccontextmanager
async def limited(
    models: Models,
    transport: LimiterTransport,
    *,
    rank: str,
    say: Callable[[str], None],
    patience: float = MAX_DOWN_S,
) -> AsyncIterator[None]:
    """Within the block, models spend and send only what the limiter lends to this rank; their ledgers' caps are then
    those of all ranks. Waits for the first lease. patience: seconds that the limiter may be away before the models are
    stopped by EndpointLost. Raises InputError for a limiter that cannot be used, EndpointLost without a first lease."""
    borrower = _Borrower(models, transport, rank, say, patience)
    await borrower.begin()
    renewing = asyncio.create_task(borrower.renew())
    try:
        yield
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        with suppress(LimiterAway, InputError):  # what is not given back counts as spent until the rank reports again
            await borrower.give_back()


class _Borrower:
    """The `Lender` of a rank's ledgers, which borrows from the limiter."""

    def __init__(
        self, models: Models, transport: LimiterTransport, rank: str, say: Callable[[str], None], patience: float
    ) -> None:
        self.granted = NOTHING
        self.refusal: RunStopped | None = None
        self.waiting_for = f"room under the caps that {transport.shown} holds"
        self._models, self._transport, self._rank, self._say, self._patience = models, transport, rank, say, patience
        self._addresses = _addresses_of(models)
        self._turn = 0
        self._asked = asyncio.Event()
        self._window = (time.monotonic(), NOTHING)
        """When the ahead was last measured, and all that was reserved until then."""
        self._begun = False
        self._away_since: float | None = None
        self._told = False
        """Whether the user knows that it is away."""
        for each in self._addresses.values():
            each.take(NO_SHARE, until=-math.inf, now=time.monotonic())
        self._ledger.under(self, Caps())

    @property
    def _ledger(self) -> Ledger:
        return self._models.main.ledger

    def ask(self) -> None:
        self._asked.set()

    async def begin(self) -> None:
        """Wait for the first lease."""
        while True:
            delay = await self._exchange()
            if isinstance(self.refusal, EndpointLost):
                raise self.refusal
            if self._begun:
                return
            await asyncio.sleep(delay)

    async def renew(self) -> None:
        """Report again and again, until cancelled or refused."""
        delay = REPORT_S
        while self.refusal is None or isinstance(self.refusal, CapReached):
            began = time.monotonic()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), delay)
            await asyncio.sleep(max(0.0, SOONEST_S - (time.monotonic() - began)))
            self._asked.clear()
            try:
                delay = await self._exchange()
            except InputError as error:
                self._stop(EndpointLost(f"{error}. Then run the same command to continue"))
            except Exception as error:  # noqa: BLE001 - nobody awaits this task before the end
                self._stop(EndpointLost(f"a lease of {self._transport.shown} was not usable: {error!r}"))

    async def give_back(self) -> None:
        """Report for the last time: only what is in flight is held. Raises LimiterAway and InputError."""
        for each in self._addresses.values():
            each.take(NO_SHARE, until=-math.inf, now=time.monotonic())
        for _ in range(2):
            held = self._ledger.total(promised=True)
            lease = await self._lease(self._report(held, None, held, {}))
            self._turn = lease.turn
            if lease.counted:
                return

    # -- one report -------------------------------------------------------------------------------

    async def _exchange(self) -> float:
        """Send a report, and go by its lease. Seconds until the next one, if nothing happens. Raises InputError."""
        now = time.monotonic()
        report = self._state(now)
        try:
            lease = await self._lease(report)
        except LimiterAway as away:
            self._away(away)
            return RETRY_S
        self._turn = lease.turn
        if not lease.counted:  # it was started again, perhaps with a cap that it did not have
            self._ledger.under(self, lease.caps)
            self.granted = self._where_capped(self._ledger.total(promised=True))
            return SOONEST_S
        if self._told:
            self._say(f"the limiter at {self._transport.shown} answers again")
        self._away_since, self._told = None, False
        self._begun = True
        lower = self._go_by(lease, sent_at=now)
        lent = report.least is None or report.least.within(lease.allowed)
        return SOONEST_S if lower else REPORT_S if lent else RETRY_S

    async def _lease(self, report: Report) -> Lease:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._transport.lease(report)
        except TimeoutError:
            raise LimiterAway(f"no answer within {ANSWER_S:g} s") from None

    def _state(self, now: float) -> Report:
        """The report. What it does not hold any more is not spent from now on."""
        ledger, waiting = self._ledger, self._ledger.waiting
        since, before = self._window
        seconds, reserved = max(REPORT_S, now - since), ledger.all_reserved
        whole = now - since >= REPORT_S
        if whole:
            self._window = (now, reserved)
        least = min((ledger.total(each, promised=True) for each in waiting), key=lambda each: each.tokens, default=None)
        wanted = ledger.total(*waiting, promised=True) + (reserved - before).times(AHEAD / seconds)
        held = ledger.total(promised=True)
        if least is None:
            held = held.at_least(self.granted.at_most(wanted))
        self.granted = self._where_capped(held)
        addresses = {name: each.report(now, seconds, whole=whole) for name, each in self._addresses.items()}
        return self._report(held, least, wanted, addresses)

    def _report(
        self, held: Amount, least: Amount | None, wanted: Amount, addresses: dict[str, AddressReport]
    ) -> Report:
        return Report(
            rank=self._rank,
            turn=self._turn,
            spent=self._ledger.total(promised=False),
            held=held,
            least=least,
            wanted=wanted,
            prices={
                name: (price.tokens_in, price.tokens_out, price.cached_in)
                for name, price in self._models.prices.items()
            },
            addresses=addresses,
        )

    def _where_capped(self, amount: Amount) -> Amount:
        caps = self._ledger.caps
        return Amount(
            *(
                math.inf if cap is None else each
                for cap, each in zip((caps.calls, caps.tokens, caps.cost), amount, strict=True)
            )
        )

    def _go_by(self, lease: Lease, *, sent_at: float) -> bool:
        """Whether a share is lower than before: others get what it leaves once that is reported."""
        if lease.caps.cost is not None and self._ledger.cost is None:
            nameless = next(each.name for each in self._models.all if each.ledger.price is None)
            raise InputError(
                f"the limiter at {self._transport.shown} holds --max-cost, which needs the price of {nameless}: give "
                "it, in dollars per million tokens (0 for a server of your own)"
            )
        self._ledger.under(self, lease.caps)
        self.granted = self._where_capped(lease.allowed)
        if crossed := lease.crossed:
            holder = f"the limiter at {self._transport.shown}" if self._transport.own_command else ""
            spent, limit = crossed.spent, crossed.limit
            self.refusal = cap_reached(crossed.cap, spent, limit, needed=crossed.needed, holder=holder)
        until, now = sent_at + lease.seconds, time.monotonic()
        lower = [
            each.take(lease.addresses[name].share, until=until, pause=lease.addresses[name].pause, now=now)
            for name, each in self._addresses.items()
        ]
        self._ledger.wake()
        for endpoint in self._models.endpoints:
            endpoint.scheduler.wake()
        return any(lower)

    def _away(self, away: LimiterAway) -> None:
        """Say so once nothing can be sent, and stop the models when patience is over."""
        now, where = time.monotonic(), f"the limiter at {self._transport.shown}"
        if self._away_since is None:
            self._away_since = now
        waited = now - self._away_since
        if waited >= self._patience:
            self._stop(
                EndpointLost(
                    f"{where} has not answered for {seconds_text(self._patience)}: {away}. Start `reasonrag limiter` "
                    "there again, then run the same command to continue"
                )
            )
        elif not self._told and (not self._turn or waited >= LEASE_S):
            self._told = True
            self._say(
                f"{where} does not answer ({away}): nothing is sent until it does, for at most "
                f"{seconds_text(self._patience)}"
            )

    def _stop(self, reason: RunStopped) -> None:
        self.refusal = reason
        self._models.stop(reason)


@dataclass(slots=True)
class _Address:
    """The paces of one address and model (one for each time that it was given), and what they had sent when demand was
    last measured. waiting: requests that could go there."""

    paces: list[Pace]
    waiting: Callable[[], float]
    governed: bool
    requests: int = 0
    tokens: float = 0.0

    def report(self, now: float, seconds: float, *, whole: bool) -> AddressReport:
        """seconds: since demand was last measured. whole: measure it anew from now on."""
        learned = next((each.learned for each in self.paces if each.learned), {})
        return AddressReport(
            governed=self.governed,
            learned=Rates(learned.get("requests"), learned.get("tokens")),
            held=self.held(now),
            demand=self._demand(seconds, whole=whole),
            pause=min(LONGEST_RETRY_AFTER_S, max(0.0, *(each.asked_until - now for each in self.paces))),
        )

    def held(self, now: float) -> Rates:
        """What may be sent per minute; nothing once the lease has ended."""
        if now >= self.paces[0].leased_until:
            return NO_SHARE
        first, times = self.paces[0], len(self.paces)
        return Rates(*(None if each.limit is None else each.limit * times for each in (first.requests, first.tokens)))

    def _demand(self, seconds: float, *, whole: bool) -> tuple[float, float]:
        """Requests and tokens per minute that it would send: more than lately, and those that wait."""
        requests = sum(each.sent_requests for each in self.paces)
        tokens = sum(each.sent_tokens for each in self.paces)
        wanted = AHEAD * (requests - self.requests) / seconds + self.waiting() / REPORT_S
        each = tokens / requests if requests else 0.0
        if whole:
            self.requests, self.tokens = requests, tokens
        return 60 * wanted, 60 * wanted * each

    def take(self, share: Rates, *, until: float, pause: float = 0.0, now: float) -> bool:
        """Go by a share; whether it is lower than before."""
        before = self.held(now)
        requests, tokens = (None if each is None else each / len(self.paces) for each in share)
        for pace in self.paces:
            pace.lease(requests, tokens, until=until, pause=pause, now=now)
        return any(new is not None and (old is None or new < old) for new, old in zip(share, before, strict=True))


NO_SHARE = Rates(0, 0)


def _addresses_of(models: Models) -> dict[str, _Address]:
    """The addresses of all models, by what the limiter calls them. Limits that it was given are for those of the main
    model."""
    main = models.main.inner
    of_main = {where for where, _ in main.paces} if isinstance(main, EndpointModel) else set()
    found = dict[str, _Address]()
    for endpoint in models.endpoints:

        def waiting(endpoint: EndpointModel = endpoint) -> float:
            return endpoint.scheduler.waiting / len(endpoint.paces)

        for where, pace in endpoint.paces:
            name = f"{where} {endpoint.name}"[:MOST_NAME]
            if name in found:
                found[name].paces.append(pace)
            else:
                found[name] = _Address([pace], waiting, where in of_main)
    return found


# -- over HTTP ------------------------------------------------------------------------------------------------------


class HttpLimiter(HttpClient):
    """The limiter that `reasonrag limiter` serves at an address like `http://host:8002`. token: sent as
    `Authorization: Bearer TOKEN`, and nowhere else. Must be closed. Raises InputError for what is no address."""

    own_command = True

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = http_address(url)
        if parts is None or parts.username or parts.password or parts.query or parts.fragment:
            raise InputError(
                f"--limiter {shown_url(url)!r} is not a limiter's address; it should look like http://node1:{LIMITER_PORT}"
            )
        self.shown = shown_url(url).rstrip("/")
        self._url = f"{url.rstrip('/')}/lease"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def _open(self) -> ClientSession:
        return open_session(self._url, self._headers, timeout=ANSWER_S)

    async def lease(self, report: Report) -> Lease:
        from aiohttp import ClientError

        try:
            content = report.model_dump_json().encode()
            async with self._session.post(self._url, data=content, allow_redirects=False) as response:
                status, body = response.status, await read_body(response, MOST_LEASE_BYTES)
        except (ClientError, OSError, ValueError) as error:
            raise LimiterAway(one_line(excerpt(str(error) or type(error).__name__, _MOST_SAID))) from None
        if status == HTTPStatus.OK and len(body) <= MOST_LEASE_BYTES:
            with suppress(ValidationError):
                return Lease.model_validate_json(body)
        said = one_line(excerpt(body.decode("utf-8", "replace"), _MOST_SAID))
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise LimiterAway(f"status {status}: {said}")
        if status == HTTPStatus.UNAUTHORIZED:
            raise InputError(f"the limiter at {self.shown} wants its token: set {TOKEN_VARIABLE}")
        raise InputError(
            f"{self.shown} does not answer as a limiter (status {status}: {said}). Check --limiter, and that "
            "`reasonrag limiter` has the same version there"
        )


def limiter_token() -> str | None:
    """The token in the environment."""
    return os.environ.get(TOKEN_VARIABLE) or None
