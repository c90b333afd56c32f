"""The command `reasonrag simulate-endpoint`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.options import options
from reasonrag.settings import Opposite, Panel, Port, Settings, Words, resolve, setting
from reasonrag.web import LOOPBACK

Switch = Annotated[bool, Opposite(None)]


class SimulatorSettings(Settings):
    """Settings of `simulate-endpoint`; see `EndpointBehaviour`."""

    host: str = setting("Address to listen on", default=LOOPBACK)
    port: Port = setting("Port; 0 takes a free one", default=8765)
    latency: float = setting("Seconds that every response takes", default=0.0, ge=0)
    ignore_n: Switch = setting("Return one choice, whatever n is", default=False)
    ignore_stop: Switch = setting("Continue past the stop string", default=False)
    fail_every: int = setting("Answer every Nth request with status 503; 0: none", default=0, ge=0)
    api_key: str | None = setting("Accept only this key [default: any]")
    max_choices: int | None = setting("Maximum choices per request", ge=1)
    rpm: int | None = setting("Requests per minute; further ones get status 429", Panel.LIMITS, ge=1)
    tpm: int | None = setting("Tokens per minute; further ones get status 429", Panel.LIMITS, ge=1)
    retry_after: bool = setting("Send Retry-After with status 429", Panel.LIMITS, default=True)
    fault: Words = setting(
        "KIND=SHARE: inject this fault into a share of the requests; repeatable. By the request's number: 429, "
        "429-retry-after, 500, reset, half-body, hang, invalid-json, empty-choices, slow-first-byte. By its "
        "content, every time: same-500, length, content-filter",
        Panel.FAULTS,
        default=[],
    )
    fault_seed: int = setting("Seed that decides which requests are hit", Panel.FAULTS, default=0)
    hang: float = setting("Seconds that a request with fault hang waits", Panel.FAULTS, default=600.0, ge=0)
    slow: float = setting("Seconds to the first byte with fault slow-first-byte", Panel.FAULTS, default=2.0, ge=0)
    canned: Switch = setting("Keep replies, so that repeating a run costs less CPU", default=False)


@options(SimulatorSettings)
def simulate_endpoint(**flags: Any) -> None:
    """Serve the offline teacher as an OpenAI-compatible endpoint with the faults you choose, for free.

    GET /stats shows what it has seen; POST /down {"down": true} takes it down.
    """
    from reasonrag.llm.servers.simulator import EndpointBehaviour, parse_faults, serve_forever

    # flags only: the environment's rate limits are those of a run
    settings = resolve(SimulatorSettings, "simulate-endpoint", flags, environment={}, file=Path(os.devnull))
    behaviour = EndpointBehaviour(
        latency_s=settings.latency,
        faults=parse_faults(settings.fault),
        hang_s=settings.hang,
        slow_s=settings.slow,
        **settings.model_dump(exclude={"host", "port", "latency", "fault", "hang", "slow"}),
    )

    def say(base_url: str) -> None:
        print(f"serving at {base_url}  (stop with Ctrl-C)", flush=True)
        print(f"try: reasonrag generate --model offline --base-url {base_url} --run runs/rehearsal", flush=True)

    try:
        asyncio.run(serve_forever(behaviour, host=settings.host, port=settings.port, say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
