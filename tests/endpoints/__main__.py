"""The offline teacher as an OpenAI-compatible endpoint, with limits and faults of your choice; run it from a clone.

This room is test equipment: tests and benchmarks import it, and it is not in the wheel.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from reasonrag.errors import ReasonragError
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, serve_until_stopped
from tests.endpoints.behaviour import FAULTS, EndpointBehaviour, parse_faults
from tests.endpoints.simulator import address_path, make_app


def flags() -> argparse.ArgumentParser:
    """A flag for each field of EndpointBehaviour, the faults in words, and an address."""
    parser = argparse.ArgumentParser("python -m tests.endpoints", description=__doc__, allow_abbrev=False)
    for name, field in EndpointBehaviour.model_fields.items():
        if field.description:
            switch = {"action": argparse.BooleanOptionalAction} if isinstance(field.default, bool) else {}
            flag = f"--{name.replace('_', '-')}"
            parser.add_argument(flag, default=argparse.SUPPRESS, help=field.description, **switch)  # type: ignore[arg-type]
    known = f"a retry may succeed after {', '.join(FAULTS)}"
    parser.add_argument(
        "--fault", metavar="KIND=SHARE", action="append", default=[], help=f"Share of requests; repeatable: {known}"
    )
    parser.add_argument("--host", default=LOOPBACK, help="Address to listen on")
    parser.add_argument("--port", type=int, default=8765, help="0 picks a free one")
    return parser


def main() -> None:
    """Serve until Ctrl-C. Bad input ends it with status 2."""
    parser = flags()
    given = vars(parser.parse_args())
    place = {name: given.pop(name) for name in ("host", "port")}
    try:
        behaviour = EndpointBehaviour(faults=parse_faults(given.pop("fault")), **given)
        service = listening(make_app(behaviour), **place)
        asyncio.run(serve_until_stopped(service, say=lambda address: say(address, behaviour)))
    except (ReasonragError, ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")


def say(address: str, behaviour: EndpointBehaviour) -> None:
    sys.stdout.write(f"serving at {address}{address_path(behaviour)}  (stop with Ctrl-C)\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
