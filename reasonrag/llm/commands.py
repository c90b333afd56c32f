"""The command `reasonrag simulate-endpoint`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from reasonrag.settings import Panel


def simulate_endpoint(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")] = 8765,
    latency: Annotated[float, typer.Option(min=0, help="Seconds that every response takes")] = 0.0,
    ignore_n: Annotated[bool, typer.Option("--ignore-n", help="Return one choice, whatever n is")] = False,
    ignore_stop: Annotated[bool, typer.Option("--ignore-stop", help="Continue past the stop string")] = False,
    fail_every: Annotated[int, typer.Option(min=0, help="Answer every Nth request with status 503; 0: none")] = 0,
    api_key: Annotated[str | None, typer.Option(help="Accept only this key [default: any]")] = None,
    max_choices: Annotated[int | None, typer.Option(min=1, help="Maximum choices per request")] = None,
    rpm: Annotated[
        int | None,
        typer.Option(min=1, help="Requests per minute; further ones get status 429", rich_help_panel=Panel.LIMITS),
    ] = None,
    tpm: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens per minute; further ones get status 429", rich_help_panel=Panel.LIMITS),
    ] = None,
    no_retry_after: Annotated[
        bool, typer.Option("--no-retry-after", help="Send no Retry-After", rich_help_panel=Panel.LIMITS)
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=SHARE",
            help="Inject this fault into a share of the requests; repeatable. By the request's number: 429, "
            "429-retry-after, 500, reset, half-body, hang, invalid-json, empty-choices, slow-first-byte. By its "
            "content, every time: same-500, length, content-filter",
            rich_help_panel=Panel.FAULTS,
        ),
    ] = None,
    fault_seed: Annotated[
        int, typer.Option(help="Seed that decides which requests are hit", rich_help_panel=Panel.FAULTS)
    ] = 0,
    hang: Annotated[
        float, typer.Option(min=0, help="Seconds that a request with fault hang waits", rich_help_panel=Panel.FAULTS)
    ] = 600.0,
    slow: Annotated[
        float,
        typer.Option(min=0, help="Seconds to the first byte with fault slow-first-byte", rich_help_panel=Panel.FAULTS),
    ] = 2.0,
    canned: Annotated[
        bool, typer.Option("--canned", help="Keep replies, so that repeating a run costs less CPU")
    ] = False,
) -> None:
    """Serve the offline teacher as an OpenAI-compatible endpoint with the faults you choose, for free.

    GET /stats shows what it has seen; POST /down {"down": true} takes it down.
    """
    from reasonrag.llm.servers.simulator import EndpointBehaviour, parse_faults, serve_forever

    habits = EndpointBehaviour(
        latency_s=latency,
        ignore_n=ignore_n,
        ignore_stop=ignore_stop,
        fail_every=fail_every,
        api_key=api_key,
        rpm=rpm,
        tpm=tpm,
        retry_after=not no_retry_after,
        max_choices=max_choices,
        faults=parse_faults(fault or []),
        fault_seed=fault_seed,
        hang_s=hang,
        slow_s=slow,
        canned=canned,
    )

    def say(base_url: str) -> None:
        print(f"serving at {base_url}  (stop with Ctrl-C)", flush=True)
        print(f"try: reasonrag generate --model offline --base-url {base_url} --run runs/rehearsal", flush=True)

    try:
        asyncio.run(serve_forever(habits, host=host, port=port, say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
