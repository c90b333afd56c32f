"""Stand-ins for the endpoints of today: each speaks as its source says, and a run against any of them is clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.profiles import PROFILES, THOUGHT
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


SMALL = {"search.simulations": 4, "search.siblings": 2, "search.continuations": 1}


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
    left_out = orjson.loads(Path(f"runs/{profile}-64/summary.json").read_bytes())["refused_parameters"]
    assert left_out == ({"offline": LEARNED[profile]} if profile in LEARNED else {})


@pytest.mark.parametrize("profile", ["gpt-5", "gpt-6", "r1", "deepseek"])
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
