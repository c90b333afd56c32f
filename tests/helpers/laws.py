"""How many examples a law is tried on: 25 in `make test` and 300 in `make test-all`, the same for everybody, and 2,000
fresh ones in `make laws`. A law whose examples are dear says its own number."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that has other work breaks no law: no deadline, and slow draws are none.
always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
everybody = settings(always, derandomize=True, database=None)
settings.register_profile("first-tier", everybody, max_examples=25)
settings.register_profile("second-tier", everybody, max_examples=300)
settings.register_profile("fresh", always, max_examples=2000, print_blob=True)


def load_profile() -> None:
    """That of the first tier, unless the command line names one (--hypothesis-profile)."""
    settings.load_profile("first-tier")
