"""How many examples a law is tried on: the same for everybody, or as many fresh ones as REASONRAG_LAW_EXAMPLES says."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FRESH = os.environ.get("REASONRAG_LAW_EXAMPLES")

# A machine that has other work breaks no law: no deadline, and slow draws are none.
always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("everybody", always, max_examples=60, derandomize=True, database=None)
settings.register_profile("fresh", always, max_examples=int(FRESH or 60), derandomize=False, print_blob=True)


def load_profile() -> None:
    settings.load_profile("fresh" if FRESH else "everybody")


def examples(usual: int) -> settings:
    """For a law that everybody tries on more or fewer than others. Fresh ones are as many for each law."""
    return settings(max_examples=int(FRESH or usual))
