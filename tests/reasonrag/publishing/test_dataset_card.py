"""The data set card: every fact from a file, what is unknown called so, and no harm done by what data holds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from preference import ExportOptions, Message, PairingRules, PairSummary, export_pairs
from preference.candidate_records import Origin, PairRecord, QuestionRecord, StateRecord, StepRecord
from preference.records import QuestionError, Usage, pair_key, state_key
from reasonrag.curation.audit.audit import DatasetAudit
from reasonrag.curation.audit.report import TokenCounterName
from reasonrag.curation.dataset_directory import read_dataset_directory
from reasonrag.curation.publish_blockers import Blocker
from reasonrag.curation.token_counters import EstimatingCounter
from reasonrag.publishing.dataset_card import DatasetCardFacts, render_dataset_card
from reasonrag.publishing.licences import licence_of
from reasonrag.publishing.staging import stage_files
from reasonrag.rendering import code, escaped

HOTPOT = Origin(
    dataset="hotpotqa",
    split="train",
    revision="0123456789abcdef0123456789abcdef01234567",
    config_hash="00112233445566aa",
    seed=7,
    recipe="economy",
    reward="spre_even",
    teacher="gpt-4o",
    retriever="bm25:901248a26572a130:k1=1.2:b=0.75:analyser=2:en",
    renderer="76dc21b33d89c11b",
    top_k=3,
    max_steps=7,
)
CHECKED = {"name": "hotpotqa/dev", "path": "/home/me/dev.jsonl", "sha256": "ab" * 32, "questions": 7405}
CONTAMINATION = {"checked": [CHECKED], "unchecked": [{"name": "popqa/test", "path": "/home/me", "reason": "is empty"}]}
CONTAMINATION |= {"questions": 1, "matched_by_split": {"hotpotqa/dev": 1}, "allowed": [], "dropped": 1}
AUDIT = DatasetAudit(EstimatingCounter()).report()
RESULTS = {each.name: each for each in AUDIT.checks}
AUDIT = AUDIT.model_copy(
    update={
        "advised_cutoff": 1536,
        "token_counter": TokenCounterName(name="Qwen2.5", exact=True),
        "checks": [
            RESULTS["empty_reply"].model_copy(update={"checked": 4}),
            RESULTS["length_bias"].model_copy(update={"checked": 4, "count": 3}),
        ],
    }
)


def state(question: str, number: int, *, origin: Origin = HOTPOT) -> StateRecord:
    """A state with three queries, the first one the best, and a pair too close to call."""
    prompt = [Message(role="system", content="Think."), Message(role="user", content=f"Question: {question} {number}")]
    steps = [
        StepRecord(id=i, action_type="query", content=f"thing {i}", response=f"<query>thing {i}</query>", reward=reward)
        for i, reward in ((1, 0.9), (2, 0.3), (3, 0.29))
    ]
    pairs = [
        PairRecord(
            pair_id=pair_key(state_key(prompt), steps[a].response, steps[b].response, of=question),
            chosen=steps[a].id,
            rejected=steps[b].id,
            label="value",
            margin=margin,
            confidence=0.9,
            similarity=0.2,
            same_type=True,
            gold="right",
        )
        for a, b, margin in ((0, 1, 0.6), (0, 2, 0.61), (1, 2, 0.01))
    ]
    return StateRecord(
        state_id=state_key(prompt),
        question_id=f"train_{question}",
        question=question,
        golden_answers=["x"],
        origin=origin,
        layer=number,
        prompt=prompt,
        steps=steps,
        pairs=pairs,
    )


def data_set(directory: Path, *, origin: Origin = HOTPOT, contamination: dict[str, Any] | None = None) -> Path:
    """Three questions with trees and one without, exported by the real code."""
    directory.mkdir()
    names = ["Who wrote it?", "Where is it?", "When was it?"]
    states = [state(name, number, origin=origin) for name in names for number in (0, 1)]
    usage = Usage(calls=40, requests=12, prompt_tokens=9_000, completion_tokens=1_000, cost_usd=0.5)
    questions = [
        QuestionRecord(
            question_id=f"train_{name}",
            question=name,
            golden_answers=["x"],
            origin=origin,
            error=QuestionError(cause="timeout", message="no answer") if name == "What is it?" else None,
            ends="mixed",
            usage=usage,
        )
        for name in [*names, "What is it?"]
    ]
    (directory / "candidates.jsonl").write_bytes(b"".join(each.to_line() for each in states))
    (directory / "questions.jsonl").write_bytes(b"".join(each.to_line() for each in questions))
    left_out = b'{"question_id": "seen", "question_key": "seen", "dropped": true, "matches": []}\n'
    (directory / "contamination.jsonl").write_bytes(left_out if (contamination or {}).get("dropped") else b"")
    export_pairs(
        directory,
        directory,
        PairingRules(min_margin=0.1),
        ExportOptions(formats=("proguide", "kto"), validation=0.3),
        facts=PairSummary(
            out=str(directory),
            sources=["/home/me/runs/h"],
            token_counter="four characters a token",  # noqa: S106
            contamination=contamination or {},
            versions={"python": "3.11.7", "reasonrag": "0.1.0"},
        ),
    )
    os.utime(directory / "summary.json", (1_800_000_000, 1_800_000_000))
    return directory


def change_summary(directory: Path, **facts: Any) -> None:
    path = directory / "summary.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | facts))


def card_of(directory: Path, tmp_path: Path, *, repo: str = "org/hotpot-pairs", **facts: Any) -> str:
    inventory = read_dataset_directory(directory)
    staged = stage_files(inventory, tmp_path / "staged", repo=repo, trees={})
    given_facts: dict[str, Any] = {"audit": AUDIT, "licence": None, "aside": [], "staged": staged} | facts
    return render_dataset_card(DatasetCardFacts(repo, inventory, **given_facts))


def test_the_card_tells_all_facts_of_a_data_set(tmp_path: Path, golden: Any) -> None:
    """The whole card, so that every change of it is seen."""
    directory = data_set(tmp_path / "h", contamination=CONTAMINATION)
    text = card_of(directory, tmp_path, aside=[Blocker("--allow", "length_bias", "chosen sides are shorter")])
    assert "/home/me" not in text
    golden("dataset_card.md", text.encode())


def test_what_nobody_recorded_is_unknown(tmp_path: Path) -> None:
    """An imported data set of an unknown question set: neither teacher nor licence nor language is guessed;
    the agent and the reader are said."""
    origin = Origin(dataset="made by hand", split="train", agent="search-o1", reader="small")
    directory = data_set(tmp_path / "d", origin=origin)
    change_summary(directory, usage=None, mean_confidence=None)
    text = card_of(directory, tmp_path)
    assert "unknown, because not every question records its cost" in text
    assert "Labels are estimates" not in text
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["license"] == "unknown"
    assert "language" not in front
    assert "teacher `unknown`" in text
    assert "Overlap with evaluation sets was not checked" in text
    assert "| `made by hand` | unknown | not given | unknown |" in text
    assert "| agent | `search-o1` |\n| reader | `small` |" in text
    assert "arxiv:2502.13957" in front["tags"]


HOSTILE = "a`b|c\n# owned\n<script>alert(1)</script>[x](javascript:1)![i](http://e.vil/p.png)\u202e{{7*7}}\n```\n---"


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    """Names from data stay names: in one line, in a code span, never markup, never YAML, never a template."""
    named = ("dataset", "teacher", "retriever", "recipe", "agent", "reader")
    origin = HOTPOT.model_copy(update=dict.fromkeys(named, HOSTILE))
    contamination = {"checked": [{"name": HOSTILE, "questions": HOSTILE}], HOSTILE: HOSTILE}
    checks = [RESULTS["empty_reply"].model_copy(update={"finds": HOSTILE})]
    audit = AUDIT.model_copy(update={"data": HOSTILE, "checks": checks})
    directory = data_set(tmp_path / "d", origin=origin, contamination=contamination)
    text = card_of(directory, tmp_path, audit=audit, aside=[Blocker("--allow", HOSTILE, HOSTILE)])
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["pretty_name"] == "hotpot-pairs"
    assert "\u202e" not in text
    assert not re.findall(r"^# owned", body, re.MULTILINE)
    outside = re.sub(r"^```.*?^```$", "", body, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", outside)
    assert "<script>" not in outside
    assert "](javascript" not in outside
    assert "http://e.vil" not in outside
    assert len(re.findall(r"^```", body, re.MULTILINE)) % 2 == 0


@given(st.text())
def test_any_text_is_one_line_without_markup(text: str) -> None:
    """Escaped text has no bare special character, and a code span ends where it should."""
    plain = str(escaped(text))
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>#|~$]", plain)
    assert "\n" not in plain
    span = str(code(text))
    assert "\n" not in span
    fence = re.match("`*", span)
    assert fence is not None
    inner = span[len(fence[0]) : -len(fence[0])] if fence[0] else ""
    assert fence[0] not in re.findall("`+", inner)


@pytest.mark.parametrize(
    ("datasets", "licence"),
    [
        (["atlas"], "apache-2.0"),
        (["atlas", "popqa"], "cc-by-sa-4.0"),
        (["hotpotqa", "mine"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_licence_is_the_strictest_that_the_parts_ask_for(datasets: list[str], licence: str) -> None:
    """Text of Wikipedia has to be shared alike; of what is not known nobody can say anything."""
    assert licence_of(datasets) == licence


def test_the_card_tells_how_labels_and_questions_came_about(tmp_path: Path) -> None:
    """Labels by outcome; labels by a judge without a known price. Each data set of a mixture has a line of its own that
    says how its questions were drawn and helped."""
    shown = {"sampled": True, "steps_by_hops": True, "passage_order": "worst-first", "style": "long"}
    directory = data_set(tmp_path / "d", origin=HOTPOT.model_copy(update=shown))
    lines = list(map(orjson.loads, (directory / "questions.jsonl").read_bytes().splitlines()))
    lines[1]["origin"]["dataset"] = "2wikimultihopqa"
    (directory / "questions.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    counts = dict.fromkeys(("seed", "states", "picked", "none", "unreadable", "given_up", "calls", "session_calls"), 1)
    agrees = {"share": 0.5, "of": 2, "low": 0.1, "high": 0.9}
    judging = {"model": "/models/qwen3", "gold": True, "agrees_with_values": agrees, "cost_usd": None} | counts
    usage = {"calls": 7, "cost_usd": None}
    change_summary(directory, pairs_by_label={"outcome": 6}, judging=judging, usage=usage)
    text = card_of(directory, tmp_path)
    assert {"- 3 questions, drawn at random, of `hotpotqa/train`", "- 1 questions, drawn at random, of `2wiki"} <= {
        each.partition(" at revision")[0].partition("multihop")[0] for each in text.splitlines()
    }
    assert "in the order `worst-first`, answers `long`, at most `7` steps, or those that a question's hops need" in text
    assert "Pairs with `label` outcome: a step's reward is the outcome of the one trajectory" in text
    assert "Labels by outcome rest on one trajectory a step" in text
    assert "| judge | `[removed]` |" in text, "the address of a judge stays private"
    assert "dollars unknown, because a model has no price" in text
