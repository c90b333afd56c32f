"""Attempts as sessions for the Hub's trace viewer, in a data set of their own.

Decides their files, one a session in the Hub's Session Trace Simple Format, and their card. The Hub looks for traces
where a data set's rows are JSON; the rows of `staging` are Parquet, so one repository cannot have both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import orjson

from preference import Origin
from preference.best_path import question_record
from preference.candidate_records import QuestionRecord, question_key
from preference.records import read_rollouts
from reasonrag.agent.protocols.conversations import Conversations
from reasonrag.agent.settings import OURS
from reasonrag.files import CONFIG, ROLLOUTS
from reasonrag.llm.hermes import with_call_ids
from reasonrag.publishing.upload import RepositoryKind
from reasonrag.redaction import mask_secrets_in, secrets
from reasonrag.rendering import markdown_templates
from reasonrag.run_config import read_config
from reasonrag.training.model_card import CARD

TRACES = "traces"
_SESSION = re.compile(r"[^/]+/(?:best|worst)/\d{6}\.jsonl")
SESSIONS = RepositoryKind("dataset", "data set of traces", lambda path: _SESSION.fullmatch(path) is not None)
MOST = 500
"""Questions of a run that get traces: what goes up is one commit, and the Hub advises against large ones."""


def traces_of(repo: str) -> str:
    """Their repository, beside that of the rows."""
    return f"{repo}-{TRACES}"


def stage_traces(
    trees: Mapping[str, Path],
    origins: Mapping[str | None, Origin],
    folder: Path,
    *,
    repo: str,
    licence: str,
    left_out: Collection[str],
) -> tuple[list[str], list[str]]:
    """Write the best and the worst attempt at each question, and the card. origins: of runs, by their configuration.
    left_out: keys of questions that the rows are not made of. Returns the paths, and in words which runs and questions
    have none."""
    paths, without = list[str](), list[str]()
    for tree, run in trees.items():
        origin = origins[read_config(run / CONFIG).config_hash]
        if origin.agent not in (None, OURS, "tools"):
            without.append(f"{tree} has no traces: turns of the agent {origin.agent} are no conversation with a tool")
            continue
        asked = shown = 0
        for asked, rollout in enumerate(read_rollouts(run / ROLLOUTS), 1):
            kept = question_key(rollout.question) not in left_out
            sessions = _sessions(question_record(rollout, origin, every_step=True)) if kept else {}
            shown += bool(sessions)
            for side, lines in sessions.items():
                lines[0]["id"] = f"{tree}/{side}/{asked:06}"
                paths.append(f"{lines[0]['id']}.jsonl")
                (folder / paths[-1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / paths[-1]).write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
            if shown == MOST:
                without.append(f"{tree} has traces of {shown:,} of its first {asked:,} questions; no run has more")
                break
        else:
            few = f"{tree} has traces of {shown:,} of {asked:,} questions: others ended alike, or are left out"
            without += [f"{few}, or cannot be told as a conversation"] if shown < asked else []
    if paths:
        card = markdown_templates().get_template("traces_card.md.j2")
        (folder / CARD).write_text(card.render(repo=repo, licence=licence, sessions=f"{len(paths):,}"), "utf-8")
        paths.append(CARD)
    return paths, without


def _sessions(question: QuestionRecord) -> dict[str, list[dict[str, Any]]]:
    """The lines of two attempts, by side; none where no two differ in their outcome."""
    known = secrets()
    facts = mask_secrets_in(question.model_dump(include={"question_id", "question", "golden_answers"}), known)
    header = {"type": "session", "harness": "reasonrag", "id": "", "name": facts["question"]} | facts
    return {
        side: [header | {"attempt": side}, *map(_message, with_call_ids(mask_secrets_in(row["prompt"] + turns, known)))]
        for _, row in Conversations(["attempts"]).of_question(question)
        for side, turns in (("best", row["chosen"]), ("worst", row["rejected"]))
    }


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    message = {"role": turn["role"], "content": turn["content"]}
    if "tool_call_id" in turn:
        message["toolCallId"] = turn["tool_call_id"]
    if "tool_calls" in turn:
        message["toolCalls"] = [{"id": each["id"], "function": each["function"]} for each in turn["tool_calls"]]
    return {"type": "message", "message": message}
