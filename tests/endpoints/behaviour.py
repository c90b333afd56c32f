"""How the simulated endpoint behaves: the flags of `python -m tests.endpoints`, with each default once.

Decides names, defaults and validity of behaviours, faults and profiles. Knows no server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reasonrag.errors import InputError, choices
from tests.endpoints.profiles import PROFILES, Profile, find_profile

FAULTS = {
    "429": "status 429 without Retry-After",
    "429-retry-after": "status 429 with Retry-After: 0.1",
    "no-capacity": "status 429 resource_unavailable, to requests with service_tier flex",
    "500": "status 500, each time with another text",
    "reset": "the connection is reset without an answer",
    "half-body": "the connection is closed in the middle of the answer",
    "hang": "no answer for --hang seconds, then the connection is closed",
    "invalid-json": "status 200 and a body that is not JSON",
    "empty-choices": "status 200 and no choices",
    "slow-first-byte": "the answer, but after --slow seconds",
}
"""Faults drawn by request number: a retry may be answered."""


class EndpointBehaviour(BaseModel):
    """How the endpoint behaves. Raises InputError for an unknown profile or fault.

    rpm, tpm: from a bucket of a few seconds' worth, at least 1; None: no limit. Prompt tokens count when a request is
        admitted, completion tokens when it is answered; refused requests do not count.

    faults: share of requests by kind, in [0, 1], together at most 1; a request has at most one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    profile: str | None = Field(None, description=f"Imitate this endpoint: {', '.join(PROFILES)}")
    latency: float = Field(0.0, ge=0, description="Seconds per response")
    ignore_n: bool = Field(default=False, description="Return one completion, whatever n is")
    ignore_stop: bool = Field(default=False, description="Continue beyond the stop string")
    api_key: str | None = Field(None, description="Accept only this key [default: any]")
    rpm: int | None = Field(None, ge=1, description="Requests per minute; more get status 429")
    tpm: int | None = Field(None, ge=1, description="Tokens per minute; more get status 429")
    faults: Mapping[str, Annotated[float, Field(ge=0)]] = {}
    fault_seed: int = Field(0, description="Seed that decides which requests fail")
    hang: float = Field(600.0, ge=0, description="Seconds that fault hang waits")
    slow: float = Field(2.0, ge=0, description="Seconds to the first byte with fault slow-first-byte")
    canned: bool = Field(default=False, description="Keep completions, so that repeating a run needs less CPU")

    @model_validator(mode="after")
    def _known(self) -> Self:
        find_profile(self.profile)
        for kind in self.faults.keys() - FAULTS.keys():
            raise InputError(f"there is no fault {kind!r}; {choices(kind, [*FAULTS])}")
        if math.fsum(self.faults.values()) > 1 + 1e-9:
            raise InputError(f"the shares of {', '.join(self.faults)} are together more than 1")
        return self

    @property
    def stand_in(self) -> Profile:
        return find_profile(self.profile)


def parse_faults(flags: Iterable[str]) -> dict[str, float]:
    """Faults from words like `500=0.05`. Raises ValueError."""
    words = (flag.partition("=") for flag in flags)
    return {kind: float(share) for kind, _, share in words}
