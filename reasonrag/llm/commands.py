"""The command `reasonrag simulate-endpoint`."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Any

import typer

from reasonrag.llm.servers.behaviour import LASTING_FAULTS, PASSING_FAULTS, EndpointBehaviour, parse_faults
from reasonrag.options import options
from reasonrag.settings import ALLOW_HOST, Panel, Port, Words, resolve, setting
from reasonrag.terminal import print_shown
from reasonrag.web.client import LOOPBACK


class SimulatorSettings(EndpointBehaviour):
    """Settings of `simulate-endpoint`: a behaviour, with its faults in words, and an address."""

    host: str = setting("Address to listen on", default=LOOPBACK, common=True)
    port: Port = setting("Port; 0 picks a free one", default=8765, common=True)
    allow_host: Words = setting(ALLOW_HOST, default=[])
    fault: Words = setting(
        "KIND=SHARE: answer this share of requests with a fault; repeatable. A retry may succeed after "
        f"{', '.join(PASSING_FAULTS)}; it meets the same fault again with {', '.join(LASTING_FAULTS)}",
        Panel.FAULTS,
        default=[],
        common=True,
    )


@options(SimulatorSettings, without={"faults"}, example="reasonrag simulate-endpoint --profile gpt-5 --fault 500=0.05")
def simulate_endpoint(**flags: Any) -> None:
    """Serve the offline teacher as an OpenAI-compatible endpoint, with limits and faults of your choice.

    Costs nothing. GET /stats shows the requests so far; POST /down {"down": true} takes it down. Both need the key
    of --api-key.
    """
    from reasonrag.llm.servers.simulator import serve_forever

    # flags only: the environment's rate limits are those of a run
    settings = resolve(SimulatorSettings, "simulate-endpoint", flags, environment={}, file=Path(os.devnull))
    own = settings.model_dump(exclude={"host", "port", "allow_host", "fault", "faults"})
    behaviour = EndpointBehaviour(**own, faults=parse_faults(settings.fault))
    stand_in = behaviour.stand_in

    def say(base_url: str) -> None:
        print_shown(f"serving at {base_url}  (stop with Ctrl-C)", flush=True)
        if behaviour.profile:
            print_shown(f"profile {behaviour.profile}: {stand_in.stands_for}. Source: {stand_in.source}", flush=True)
        key = "OPENAI_API_KEY=any " if stand_in.needs_key and not behaviour.api_key else ""
        key = "OPENAI_API_KEY=.. " if behaviour.api_key else key
        generate = "reasonrag generate --model offline --run runs/rehearsal"
        print_shown(f"try: {key}{generate} --base-url {shlex.quote(base_url)}", flush=True)

    try:
        place = {"host": settings.host, "port": settings.port, "allow_host": settings.allow_host}
        asyncio.run(serve_forever(behaviour, say=say, **place))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
