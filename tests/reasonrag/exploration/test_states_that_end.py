"""What one state suffers ends that state: runs whose endpoint or retriever rejects what holds a certain word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

import reasonrag as package
from reasonrag.cli import run as command_line
from reasonrag.errors import InputError
from reasonrag.exploration.degeneracy import observed_signs
from reasonrag.exploration.summary import AGAINST, RunSummary
from reasonrag.llm import offline
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.retrieval.remote import PROBE
from reasonrag.retrieval.retriever import QUERY_BYTES
from reasonrag.serving.openai_api import ChatCompletionRequest, as_json, completion
from tests.helpers.endpoints import Answering, Served
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.trees import trees

WORD = "engraver"
"""In the passages of some read turns, in no question and in no passage of others."""
Said = Callable[[ChatCompletionRequest], web.Response]


def error(status: int, message: str, **more: Any) -> Said:
    return lambda _: web.json_response({"error": {"message": message, **more}}, status=status)


def said(**choice: Any) -> Said:
    def answer(wanted: ChatCompletionRequest) -> web.Response:
        return web.json_response({"choices": [{"index": 0, **choice}] * wanted.n, "usage": None})

    return answer


SUFFERED: dict[str, tuple[Said, str]] = {  # what else providers say: tests/reasonrag/llm/endpoint/test_error_objects.py
    "content_filter with 400": (error(400, "no", code="content_filter"), "withheld"),
    "a null message": (
        said(message={"role": "assistant", "content": None}, finish_reason="content_filter"),
        "withheld",
    ),
    "OpenAI's context": (error(400, "too long", code="context_length_exceeded"), "too_long"),
    "a 400 of its own": (error(400, "cannot render this conversation"), "rejected"),
}


@contextmanager
def endpoint(suffers: Said, *, where: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """The offline teacher over HTTP, but for user turns of this kind; and the user turns that were asked."""
    asked: list[str] = []

    async def chat(request: web.Request) -> web.Response:
        wanted = ChatCompletionRequest.read(await request.read())
        user = wanted.messages[-1].content
        if user == "Say yes.":
            return as_json(completion("offline", [("yes", "stop")], prompt_tokens=3, completion_tokens=1))
        asked.append(user)
        if where(user):
            return suffers(wanted)
        replies = [
            (offline.reply(wanted.messages, temperature=1.0, seed=wanted.seed or 0, choice=each), "stop")
            for each in range(wanted.n)
        ]
        return as_json(completion("offline", replies, prompt_tokens=300, completion_tokens=60))

    with Answering(chat).open() as served:
        yield served.base_url, asked


def generated(base_url: str, run: str = "runs/a", **more: Any) -> RunSummary:
    given = {"dataset": "atlas", "limit": 6, "set": {"search.simulations": 10}, "model": "offline", "yes": True}
    return package.generate(**given | {"run": run, "base_url": [base_url]} | more)


def holds_the_word(user: str) -> bool:
    return WORD in user.rpartition("<reference>")[2] and "<reference>" in user


@pytest.mark.parametrize("case", SUFFERED)
def test_what_passages_bring_on_ends_their_state_and_nothing_else(case: str) -> None:
    """Row B: 6 of 6 questions; the state is in the record with its cause, counts nowhere, is in the summary, and is not
    asked about again, even where the trees are lost and the journal is left. A query all of whose readings ended has no
    reward, instead of the worst one."""
    suffers, cause = SUFFERED[case]
    with endpoint(suffers, where=holds_the_word) as (base_url, asked):
        summary = generated(base_url)
        assert (summary.done, summary.failed) == (6, 0)
        before, first = len(asked), Path("runs/a/rollouts.jsonl").read_bytes()
        if cause != "rejected":  # which is asked for again by a process that did not see it
            Path("runs/a/rollouts.jsonl").unlink()
        again = generated(base_url)
    assert (len(asked), again.done) == (before, 6)
    assert Path("runs/a/rollouts.jsonl").read_bytes() == first
    ended = [node for tree in trees() for node in tree.nodes if node.parse_error]
    assert {(node.parse_error.cause, node.terminal, node.reward) for node in ended if node.parse_error} == {
        (cause, True, None)
    }
    assert all(node.outcome and node.outcome.value is None and not node.rollouts for node in ended)
    assert {node.action for node in ended} == {"read"}
    below = [(node, [tree.nodes[each] for each in node.children_ids]) for tree in trees() for node in tree.nodes[1:]]
    assert {node.reward for node, steps in below if steps and all(each.parse_error for each in steps)} == {None}
    read = [node for tree in trees() for node in tree.nodes if node.action == "read" and not node.parse_error]
    assert len(read) > len({node.parent_id for node in ended})
    assert not any(each.end == "failed" for tree in trees() for each in tree.ends)
    assert summary.parse_failures_by_cause == {cause: sum(1 for _ in ended)}
    [warning] = [each for each in summary.warnings if "which counts nowhere: " in each]
    assert cause.replace("_", " ") in warning
    assert f": {AGAINST[cause]}; see docs/" in warning
    assert not any("never_parses" in observed_signs(tree) for tree in trees())


@pytest.mark.parametrize("case", ["a null message", "OpenAI's context"])
def test_a_question_whose_first_prompt_ended_is_an_error_and_is_not_paid_again(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be explored there. The others are done, the status is 1, and no message advises to try again."""
    suffers, cause = SUFFERED[case]
    questions: list[str] = []

    def is_the_second(user: str) -> bool:
        question = user.partition("\n")[0]
        questions.extend([question] if question not in questions else [])
        return question == questions[1:2][0] if len(questions) > 1 else False

    words = ["generate", "--limit", 3, "--set=search.simulations=4", "--model", "offline", "--yes"]
    with endpoint(suffers, where=is_the_second) as (base_url, asked):
        flags = [*map(str, words), "--run", "runs/a", "--base-url", base_url, "--concurrency", "1"]
        assert command_line(flags) == 1
        shown, before = capsys.readouterr(), len(asked)
        assert command_line(flags) == 1
        again = capsys.readouterr()
    assert len(asked) == before
    for said in (shown.err, again.err):
        assert "whose journal holds that answer; a new --run asks anew" in " ".join(said.split())
    [failed] = [tree for tree in trees() if tree.error]
    assert failed.error
    assert failed.error.cause == cause
    assert "It is not sent again in this run" in failed.error.message
    assert "the same command" not in shown.out


@pytest.mark.parametrize(
    ("suffers", "where", "causes"),
    [
        pytest.param(error(404, "no route to the model"), holds_the_word, {"http_404": 3}, id="it may pass"),
        pytest.param(error(400, "unknown field"), lambda _: True, {"http_400": 6}, id="every first prompt is rejected"),
    ],
)
def test_what_is_not_the_prompt_s_stays_owed(
    suffers: Said, where: Callable[[str], bool], causes: dict[str, int]
) -> None:
    """Such a failure, or one of all first prompts, is in no tree: the questions are asked again by the next run."""
    with endpoint(suffers, where=where) as (base_url, _):
        assert generated(base_url).failures_by_cause == causes
    assert not any(node.parse_error for tree in trees() for node in tree.nodes)
    with endpoint(suffers, where=lambda _: False) as (base_url, _):
        assert generated(base_url).done == 6


@contextmanager
def retriever(status: int, *, where: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """A search server that finds one passage for all, but rejects requests with such a query; and what it rejected."""
    rejected: list[str] = []

    async def retrieve(request: web.Request) -> web.Response:
        queries = orjson.loads(await request.read())["queries"]
        if wrong := [each for each in queries if where(each)]:
            rejected.extend(wrong)
            return web.json_response({"error": "this query cannot be searched"}, status=status)
        passage = {"document": {"id": "1", "contents": "Ann Lee\nAnn Lee was born in York."}, "score": 1.0}
        return web.json_response({"result": [[passage] for _ in queries]})

    app = web.Application()
    app.router.add_post("/retrieve", retrieve)
    with Served(app, "").open() as served:
        yield served.base_url, rejected


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_query_that_the_retriever_rejects_ends_its_state(status: int) -> None:
    """The other queries are searched; the step that would read says why it cannot."""
    with retriever(status, where=lambda query: len(query) % 3 == 0) as (url, rejected):
        summary = package.generate(
            dataset="atlas", limit=6, set={"search.simulations": 10}, model="offline", run="runs/a", retriever=url
        )
    assert (summary.done, summary.failed) == (6, 0)
    assert rejected
    ended = [node.parse_error for tree in trees() for node in tree.nodes if node.parse_error]
    assert {each.cause for each in ended} == {"no_passages"}
    assert all(f"status {status}: this query cannot be searched" in each.detail for each in ended)
    assert summary.parse_failures_by_cause == {"no_passages": len(ended)}


def test_a_retriever_that_rejects_every_query_fails_the_questions() -> None:
    """Its first search, of the check, is answered; after some in a row it is not the queries that are wrong. Where no
    question can be explored there is no estimate."""
    with retriever(400, where=lambda query: query != PROBE) as (url, _):
        found = package.generate(
            dataset="atlas", limit=12, set={"search.simulations": 10}, model="offline", run="runs/a", retriever=url
        )
        assert found.failures_by_cause.keys() == {"retrieval"}
    with (
        retriever(403, where=lambda query: query != PROBE) as (url, _),
        pytest.raises(InputError, match="could not explore any of the questions, so there is no estimate"),
    ):
        package.estimate(dataset="atlas", limit=2, model="gpt-4o", retriever=url)


def test_a_query_that_is_too_long_ends_its_state() -> None:
    """Also of a retriever in this process."""
    long = "word " * QUERY_BYTES

    def says(request: ChatRequest, position: int) -> Completion:
        turn = request.messages[-1].content
        text = (
            "So the next query is <query>when?</query>"
            if position % 2
            else f"So the next query is <query>{long}</query>"
        )
        text = "So the answer is <answer>x</answer>" if "Previous Thoughts" in turn else text
        text = "<evidence>None</evidence>" if "<reference>" in turn else text
        return Completion(text=text, finish_reason="stop")

    model = ScriptedModel(says, name="scripted")
    asked = {"limit": 1, "set": "search.simulations=6", "run": "runs/a"}
    assert package.generate(**asked, chat_model=model, model="x").done == 1
    causes = {node.parse_error.cause for tree in trees() for node in tree.nodes if node.parse_error}
    assert causes == {"no_passages"}
