"""Stand-ins for the endpoints of today: each speaks as its source says, and a run against any of them is clean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

import reasonrag as package
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.profiles import PLAIN, PROFILES, THOUGHT
from tests.endpoints.simulator import serving
from tests.endpoints.test_simulator import chat, told
from tests.helpers.endpoints import Stage
from tests.helpers.shared import Shared

ROOT = Path(__file__).parents[2]
LEARNED = {
    "gpt-5": ["max_tokens", "stop", "temperature"],
    "gpt-6": ["max_tokens"],
    "gpt-6-astra": ["max_tokens", "stop", "temperature"],
    "gemini": ["seed"],
    "fastapi-strict": ["seed"],
    "anthropic": ["n"],
    "qwen3-think": ["stop"],
    "r1": ["stop"],
    "vllm-reasoning": ["stop"],
    "deepseek": ["stop"],
}
"""What a run with the default sampling has to leave out: it is refused, does nothing, or may cut the reasoning."""


async def test_azures_dated_address_wants_its_query_and_its_own_header() -> None:
    """Without the query there is nothing, and a key as OpenAI's clients send it is none."""
    behaviour = EndpointBehaviour(profile="azure-legacy", api_key="right")
    async with serving(behaviour) as (base_url, _), aiohttp.ClientSession() as session:
        dated = URL(base_url) / "chat/completions"
        assert URL(base_url).path == "/openai/deployments/offline"
        said = []
        for query in ({}, URL(base_url).query):
            for headers in ({"Authorization": "Bearer right"}, {"api-key": "wrong"}, {"api-key": "right"}):
                async with session.post(dated.with_query(query), data=chat(), headers=headers) as response:
                    said.append((response.status, (await response.json()).get("error", {}).get("code")))
    assert said == [(404, "404")] * 3 + [(401, "401")] * 2 + [(200, None)]


# -- the token limit ---------------------------------------------------------------------------------------------


SMALL = {"search.simulations": 4, "search.siblings": 2, "search.continuations": 1}


@given(
    text=st.text(alphabet="ab </>", max_size=80),
    stop=st.lists(st.text(alphabet="ab", min_size=1, max_size=2), max_size=2),
    limits=st.tuples(st.integers(1, 120), st.integers(1, 120)).map(sorted),
    profile=st.sampled_from([None, *PROFILES]),
)
def test_a_limit_only_cuts_the_end_of_a_reply(
    text: str, stop: list[str], limits: list[int], profile: str | None
) -> None:
    """What is shown grows with the limit, never costs more than it, and is said to be cut exactly when it is."""
    stand_in = PROFILES[profile] if profile else PLAIN
    less, more = (stand_in.reply(text, {}, stop=stop, limit=each) for each in limits)
    whole = stand_in.reply(text, {}, stop=stop, limit=None)
    assert (more.content or "").startswith(less.content or "")
    assert more.reasoning.startswith(less.reasoning)
    assert less.tokens <= min(limits[0], whole.tokens)
    assert less.reasoning_tokens <= less.tokens
    cut = (less.content, less.reasoning) != (whole.content, whole.reasoning)
    assert cut <= (less.finish_reason == "length")
    assert whole.finish_reason == "stop"


# -- with everything else ----------------------------------------------------------------------------------------


async def test_without_a_seed_each_time_is_another_draw() -> None:
    """As at an endpoint that takes none; all answers to one request are the same in any order of requests."""
    first, second = chat(seed=None), chat(seed=None, temperature=0.9)
    counted = []
    for order in ([first] * 8 + [second] * 8, [second, first] * 8):
        said = Counter[str]()
        async with told(EndpointBehaviour(profile="anthropic")) as (client, _):
            for each in order:
                said[str((await client.ask(each)).json["choices"])] += each is first
        counted.append(said)
    assert counted[0] == counted[1]
    assert sum(times > 0 for times in counted[0].values()) > 1


# -- runs --------------------------------------------------------------------------------------------------------


def atlas_index(shared: Shared) -> Path:
    """The index of the demo corpus, built once."""

    def build() -> None:
        package.generate(dataset="atlas", model="offline", limit=1, run="runs/first")

    return shared.folder("atlas-index", build) / "indexes"


def run_against(
    profile: str | None, shared: Shared, monkeypatch: pytest.MonkeyPatch, *, concurrency: int, limit: int, **more: Any
) -> list[dict[str, Any]]:
    """The nodes of a small run through real HTTP, in which no question failed."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    run = Path(f"runs/{profile}-{concurrency}")
    with Stage(EndpointBehaviour(profile=profile)).open() as stage:
        package.generate(
            dataset="atlas",
            model="offline",
            base_url=stage.base_url,
            index_home=atlas_index(shared),
            run=run,
            concurrency=concurrency,
            limit=limit,
            **{"set": SMALL, "max_steps": 3, "abort_degenerate": 0} | more,
        )
    rollouts = [orjson.loads(line) for line in (run / "rollouts.jsonl").read_bytes().splitlines()]
    assert [each["error"] for each in rollouts] == [None] * limit
    assert (run / "failures.jsonl").read_bytes() == b""
    return [node for each in rollouts for node in each["nodes"]]


def left_out(profile: str, concurrency: int) -> object:
    """What the run says that the endpoint does not get."""
    return orjson.loads(Path(f"runs/{profile}-{concurrency}/summary.json").read_bytes())["refused_parameters"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_against_any_profile_is_clean(profile: str, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question done, none failed, every reply readable; reasoning that is shown is kept, and only as such."""
    nodes = run_against(profile, shared, monkeypatch, concurrency=64, limit=12)
    assert len(nodes) > 2 * 12
    assert [node["parse_error"] for node in nodes if node["parse_error"]] == []
    shown = PROFILES[profile].reasoning not in (None, "hidden")
    for node in nodes:
        assert THOUGHT not in f"{node['response']} {node['content']} {node['prompt']}"
        assert node.get("reasoning", "").startswith(THOUGHT.strip()) == (shown and node["id"] != 0)
    assert left_out(profile, 64) == ({"offline": LEARNED[profile]} if profile in LEARNED else {})


@pytest.mark.parametrize("profile", ["gpt-5", "gpt-6", "r1", "deepseek", "azure-legacy"])
def test_the_trees_are_those_of_a_teacher_that_takes_every_parameter(
    profile: str, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where n and seed are taken: what is left out, when that was learned, and the reasoning change no step. gpt-5 and
    deepseek sample at 1 whatever is asked for; the recipe asks for no hotter draws."""
    own: dict[str, Any] = {"recipe": "continuation"}
    plain = run_against(None, shared, monkeypatch, concurrency=64, limit=12, **own)
    own |= {"temperature": 0.7, "set": SMALL | {"agent.top_p": 0.9}} if profile in ("gpt-5", "deepseek") else {}
    for concurrency in (1, 64):
        nodes = run_against(profile, shared, monkeypatch, concurrency=concurrency, limit=12, **own)
        assert [{name: each[name] for name in each.keys() - {"reasoning"}} for each in nodes] == plain
    files = [Path(f"runs/{profile}-{each}/rollouts.jsonl").read_bytes() for each in (1, 64)]
    assert files[0] == files[1]


def test_the_documentation_names_every_profile_and_its_sources() -> None:
    documented = (ROOT / "docs" / "reference" / "endpoints.md").read_text("utf-8")
    for name, profile in PROFILES.items():
        [row] = [line for line in documented.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(source in row for source in profile.source.split(", "))
