"""The commands `reasonrag simulate-endpoint` and `reasonrag limiter`."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.llm.servers.behaviour import LASTING_FAULTS, PASSING_FAULTS, EndpointBehaviour, parse_faults
from reasonrag.options import interrupts, options
from reasonrag.settings import ALLOW_HOST, MaxCalls, MaxCost, Panel, Port, Settings, Words, resolve, setting
from reasonrag.terminal import print_shown
from reasonrag.web.client import LIMITER_PORT, LOOPBACK, LOOPBACKS


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


class LimiterSettings(Settings):
    """Settings of `limiter`: caps and rates of all ranks together, and an address."""

    max_cost: MaxCost = setting("Stop before all ranks together cost more than this many dollars")
    max_calls: MaxCalls = setting("Stop before they use more than this many completions")
    max_tokens: int | None = setting("Stop before they use more than this many tokens", Panel.BUDGET, ge=0)
    rpm: int | None = setting(
        "Requests per minute of all ranks for each endpoint and model [default: from response headers]",
        Panel.LIMITS,
        ge=1,
    )
    tpm: int | None = setting(
        "Tokens per minute of all ranks for each endpoint and model [default: from response headers]",
        Panel.LIMITS,
        ge=1,
    )
    host: str = setting("Address to listen on; 0.0.0.0 accepts other machines", default=LOOPBACK)
    port: Port = setting("Port; 0 picks a free one", default=LIMITER_PORT)
    allow_host: Words = setting(ALLOW_HOST, default=[])


@options(LimiterSettings, example="reasonrag limiter runs/hotpotqa --max-cost 40 --host 0.0.0.0")
def limiter(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of all ranks")], **flags: Any
) -> None:
    """Hold the caps and rate limits of a run over all its ranks, which are given its address by --limiter.

    Killed and started again, it goes on where it was; the ranks wait for it. With REASONRAG_LIMITER_TOKEN set, requests
    without that token are refused.
    """
    settings = resolve(LimiterSettings, "limiter", flags)
    with interrupts():
        asyncio.run(_limit(run, settings))


async def _limit(run: Path, settings: LimiterSettings) -> None:
    from reasonrag.llm.budget import Caps
    from reasonrag.llm.limiter.client import TOKEN_VARIABLE, limiter_token
    from reasonrag.llm.limiter.limiter import Rates
    from reasonrag.llm.limiter.server import serving
    from reasonrag.llm.limiter.state_file import open_limiter
    from reasonrag.web.server import serve_until_stopped

    def say(address: str) -> None:
        print_shown(f"serving at {address}  (stop with Ctrl-C)", flush=True)
        if not (token or settings.host in LOOPBACKS):
            warning = f"warning: anyone who can reach {settings.host} can use the limiter; set {TOKEN_VARIABLE} to "
            print_shown(f"{warning}require a token", flush=True)
        ranks = f"--run {shlex.quote(str(run))} --limiter {address}"
        print_shown(f"ranks: reasonrag generate .. --shard 0/8 {ranks}", flush=True)

    token = limiter_token()
    caps = Caps(settings.max_cost, settings.max_calls, settings.max_tokens)
    async with open_limiter(run, caps, Rates(settings.rpm, settings.tpm)) as kept:
        service = serving(kept, host=settings.host, port=settings.port, allow_host=settings.allow_host, token=token)
        await serve_until_stopped(service, say=say)
