"""How long a run waits for its model where no address of it is of use, and the error that ends the run then.

Decides that by the waits that addresses ask for, the time without an answer, and whether what they lack is capacity.
Knows neither requests nor their attempts (`retries`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reasonrag.errors import EndpointLost, WaitTooLong
from reasonrag.llm.endpoint.address_behaviour import OneAddress, clean
from reasonrag.llm.endpoint.retries import asked_to_wait, error_message
from reasonrag.llm.endpoint.trouble import WORDS, clock_time, seconds_text, state_of, trouble_of

MAX_DOWN_S = 600.0
"""The run ends when no endpoint has answered for this long, what they asked to wait left out; paid answers are kept."""
LONG_WAIT_S, MOST_WAIT_S = 300.0, 2 * 24 * 3600.0
"""Waits that the user is told of, and after which a run ends where the user does not say."""


@dataclass(slots=True)
class Patience:
    """That of a session with a model. shown: its addresses. silence, wait: seconds without an answer, and of a wait
    that an address asks for or a lack of capacity makes, which end the run."""

    shown: str
    silence: float
    wait: float
    useless_since: float | None = None
    """When the first of all failures since the last answer came."""
    scarce_at: float = -math.inf
    """When an address last had no room for a tier, and was well otherwise."""

    def heed(
        self,
        error: Exception,
        address: OneAddress,
        addresses: Sequence[OneAddress],
        now: float,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """Note a failure of an address, and tell of a long wait. Raises WaitTooLong, EndpointLost."""
        since = self.useless_since = now if self.useless_since is None else self.useless_since
        address.trouble = state_of(error)
        asked, paces, most = asked_to_wait(error), [each.pace for each in addresses], self.wait
        self.scarce_at = now if trouble_of(error) == "scarce" else self.scarce_at
        wait = f"asks to wait {seconds_text(asked)}, until {clock_time(asked)}"
        until, silence = min(each.asked_until for each in paces), self.silence
        if now - self.scarce_at <= silence:  # what lacked of late is capacity
            silence = max(silence, most)
        if asked and until > now and until - since > most:
            allowed = f"longer than max_wait allows ({most / 60:g} minutes): {clean(error_message(error))}"
            raise WaitTooLong(f"{self.shown} {wait}, {allowed}. Run the same command then to continue") from error
        if asked >= LONG_WAIT_S and now + asked >= address.told_until + LONG_WAIT_S:
            address.told_until = now + asked
            tell(wait)
        if all(each.useless_since is not None and now - each.useless_since > silence for each in paces):
            _, lasts, then = WORDS[trouble_of(error)]
            message = f"{self.shown} {lasts} {seconds_text(silence)}: {clean(error_message(error))}"
            kind = WaitTooLong if trouble_of(error) == "scarce" else EndpointLost
            raise kind(f"{message}. {then}, run the same command to continue") from error
