"""Trees that teach nothing: by which signs they are known, what is said of them, and when a run stops."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reasonrag as package
from preference import RolloutRecord, read_rollouts
from reasonrag.data import atlas
from reasonrag.data.questions import open_questions
from reasonrag.exploration.degeneracy import (
    FAULTS_STOP_FROM,
    PAGE,
    SIGNS,
    STOPS_FROM,
    Look,
    Sign,
    SignCounts,
    StopDecision,
    observed_signs,
)
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.offline import reply
from tests.helpers.command_line import Reasonrag
from tests.helpers.listener import Listener
from tests.helpers.scripted_model import Script, ScriptedModel, turn
from tests.helpers.trees import Fields, rows
from tests.helpers.trees import tree as grown

THINK, READ, CONCLUDE = "think", "read", "conclude"
ASKED = "Which river flows through the capital of France?"


def query(content: str, parent: int = 0) -> Fields:
    return {"parent_id": parent, "action": THINK, "action_type": "query", "content": content}


def evidence(content: str, parent: int) -> Fields:
    return {"parent_id": parent, "action": READ, "action_type": "evidence", "content": content}


def answer(content: str, parent: int = 0, action: str = THINK) -> Fields:
    return {"parent_id": parent, "action": action, "action_type": "answer", "content": content, "terminal": True}


def failed(response: str, parent: int = 0) -> Fields:
    fields = {"action": THINK, "response": response, "terminal": True}
    return {"parent_id": parent, "parse_error": {"cause": "no_tag", "detail": "no tag"}} | fields


def ends(*each: tuple[float, int, str]) -> list[Fields]:
    """Continuations as (f1, steps, end)."""
    return [{"f1": f1, "em": float(f1 == 1), "steps": steps, "end": end} for f1, steps, end in each]


def tree(*steps: Fields, rollouts: Sequence[Fields] = ()) -> RolloutRecord:
    """Node i + 1 is steps[i]; the root's continuations are `rollouts`."""
    found = grown([each["parent_id"] for each in steps], steps, question=ASKED, golden_answers=["Seine"]).model_dump()
    found["nodes"][0]["rollouts"] = rollouts
    return RolloutRecord.model_validate(found)


def proposal(content: str, f1: float) -> Fields:
    """A step of a teacher from which another model went on."""
    return query(content) | {"plain_draws": 0, "rollouts": ends((f1, 3, "answer"))}


def ranked(record: RolloutRecord) -> RolloutRecord:
    return record.model_copy(update={"recipe": record.recipe.model_copy(update={"reward": "rank"})})


def chain(*contents: str) -> list[Fields]:
    """A path of queries and evidence in turn."""
    return [(query if i % 2 == 0 else evidence)(content, i) for i, content in enumerate(contents)]


# -- the signs -------------------------------------------------------------------------------------------------

TWO_STATES_ALIKE = [query("Ada"), query("Ada"), evidence("None", 1), evidence("None", 1)]
FORCED, LATE, EARLY = (0.0, 7, "conclusion"), (0.0, 7, "answer"), (0.0, 3, "conclusion")


@pytest.mark.parametrize(
    ("sign", "record", "shown"),
    [
        ("identical_siblings", tree(query("Ada"), query(" ada"), evidence("x", 1), evidence("x", 1)), True),
        ("identical_siblings", tree(*TWO_STATES_ALIKE, query("a", 3), query("b", 3)), False),
        ("identical_siblings", tree(query("Ada"), query("Ada"), failed("hm", 1), failed("hm", 1)), True),
        ("identical_siblings", tree(query("Ada"), query("Ada")), False),  # one state is too few
        ("never_parses", tree(query("a"), rollouts=ends((0, 1, "failed"), (0, 3, "failed"))), True),
        ("never_parses", tree(query("a"), rollouts=ends((0, 1, "failed"), (0, 3, "failed"), FORCED)), False),
        ("never_parses", tree(query("a"), rollouts=ends((0, 1, "failed"))), False),
        ("answered_only_when_forced", tree(query("a"), rollouts=ends(FORCED, FORCED, FORCED, FORCED, LATE)), True),
        ("answered_only_when_forced", tree(query("a"), rollouts=ends(FORCED, FORCED, FORCED, LATE)), False),
        (
            "answered_only_when_forced",
            tree(query("a"), rollouts=ends((0, 1, "failed"), (0, 3, "failed"), FORCED)),
            True,
        ),
        ("answered_only_when_forced", tree(query("a"), rollouts=ends(EARLY, EARLY, EARLY)), False),  # --max-steps 3
        ("answered_only_when_forced", tree(query("a"), rollouts=ends(FORCED)), False),
        ("answered_only_when_forced", tree(*chain(*"abcdefgh")), True),
        ("answered_only_when_forced", tree(*chain(*"abcdefg")), False),
        ("instant_answer", tree(answer("x"), answer("y"), query("a")), True),
        ("instant_answer", tree(answer("x"), query("b"), query("a")), False),
        ("instant_answer", tree(answer("x", action=CONCLUDE), answer("y", action=CONCLUDE)), False),  # --max-steps 1
        ("instant_answer", tree(query("a"), evidence("e", 1), answer("x", 2), answer("y", 2)), False),
        ("none_loop", tree(query("a"), evidence("None", 1), evidence("none.", 1), evidence("x", 1)), True),
        ("none_loop", tree(query("a"), evidence("None", 1), evidence("x", 1)), False),
        ("all_wrong", tree(query("a"), rollouts=ends((0, 1, "answer"), (0, 3, "failed"))), True),
        ("all_wrong", tree(query("a"), rollouts=ends((0, 1, "answer"), (0.2, 3, "answer"))), False),
        ("all_wrong", tree(query("a"), rollouts=ends((0, 1, "answer"))), False),
        ("all_right", tree(query("a"), rollouts=ends((1, 1, "answer"), (1, 3, "answer"))), True),
        ("all_wrong", tree(), False),
        # with a value model nothing counts for the root: what its continuations came to is known all the same
        ("all_wrong", tree(proposal("a", 0.0), proposal("b", 0.0)), True),
        ("all_wrong", tree(proposal("a", 0.0), proposal("b", 1.0)), False),
        ("all_right", tree(proposal("a", 1.0), proposal("b", 1.0)), True),
        # failed steps that count nowhere, as in recipe released, are ends all the same
        ("never_parses", tree(failed("a"), failed("b")), True),
        ("never_parses", tree(failed("a"), failed("b"), rollouts=ends(EARLY)), False),
        ("all_right", ranked(tree(query("a"), rollouts=ends((1, 1, "answer"), (1, 3, "answer")))), False),
        ("answered_only_when_forced", tree(query("a"), rollouts=[{"f1": 0.0, "em": 0.0, "steps": 7}] * 4), False),
    ],
)
def test_a_question_shows_a_sign_by_most_of_several_cases(sign: str, record: RolloutRecord, *, shown: bool) -> None:
    """Half is not most, and a single case says nothing. Siblings and forced ends take more than three quarters. Where a
    judge alone decides, right answers differ by more than their length. What is not known (no `end`) is no sign."""
    assert (sign in observed_signs(record)) == shown


@pytest.mark.parametrize(
    ("sign", "questions", "showing", "said"),
    [
        ("never_parses", 9, 9, 0),
        ("never_parses", 10, 5, 1),
        ("never_parses", 10, 4, 0),
        ("never_parses", 40, 19, 0),
        ("none_loop", 10, 7, 0),
        ("none_loop", 10, 8, 1),
    ],
)
def test_a_sign_is_said_from_ten_questions_on(sign: str, questions: int, showing: int, said: int) -> None:
    """If half of them show a fault, or three quarters something else, which half of the questions of a good run may
    show; with the remedy and where to read on. The counts are there in any case."""
    counts = SignCounts()
    for number in range(questions):
        counts.add({sign} if number < showing else set())
    news = counts.warnings().values()
    assert len(news) == said
    assert all(f"{sign.replace('_', ' ')} in {showing} of {questions} questions" in each for each in news)
    assert all(f"; see docs/troubleshooting/degenerate-trees.md#{sign.replace('_', '-')}" in each for each in news)
    assert counts.by_sign == {sign: showing}
    assert [*counts.warnings().values()] == [*news]  # `view --serve` lists them again and again


# -- when a run stops ------------------------------------------------------------------------------------------

TOTAL = 1000


def seen(*signs: str) -> Look:
    return Look(frozenset(signs), pairless=False)


def pairless(*signs: str) -> Look:
    return Look(frozenset(signs), pairless=True)


def decided(*looks: Look | None, share: float = 0.95, total: int = TOTAL) -> StopDecision:
    """With these at the beginning of the questions."""
    decision = StopDecision(share, total)
    for position, look in enumerate(looks):
        decision.add(position, look)
    return decision


def stops_from(sign: Sign) -> int:
    return FAULTS_STOP_FROM if sign.fault else STOPS_FROM


def test_it_is_decided_after_20_and_after_100_questions_and_then_no_more() -> None:
    """A run that went on then is not stopped, however the later trees look."""
    honest, alike = [seen()], pairless("identical_siblings")
    early, late = decided(*honest * 2, *[alike] * 60), decided(*honest * 6, *[alike] * 300)
    assert (early.reason, early.is_open, late.reason, late.is_open) == (None, True, None, False)
    assert "98 of 100 questions" in (decided(*honest * 2, *[alike] * 98).reason or "")


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
def test_a_sign_ends_a_run_from_its_number_of_questions_on(sign: Sign) -> None:
    """Faults of the endpoint after 20 questions; signs that good teachers may show after 100, of which none gives a
    pair: what is hard is not broken. A question that gives a pair never counts."""
    for questions in (FAULTS_STOP_FROM - 1, FAULTS_STOP_FROM, STOPS_FROM - 1, STOPS_FROM):
        decision = decided(*[pairless(sign.name)] * questions)
        assert (decision.reason is not None) == (questions >= (last := stops_from(sign)))
        if decision.reason:
            assert f"{sign.words} in {last} of {last} questions" in decision.reason
    one_pair = decided(*[pairless(sign.name)] * 70, seen(sign.name), *[pairless(sign.name)] * 70)
    assert (one_pair.reason is not None) == sign.fault
    assert decided(*[seen(sign.name)] * STOPS_FROM).reason is None


@pytest.mark.parametrize(
    ("share", "showing", "stops"),
    [(0.95, 19, True), (0.95, 18, False), (1.0, 20, True), (1.0, 19, False), (0.5, 10, True), (0.0, 20, False)],
)
def test_the_share_decides_and_0_never_stops(share: float, showing: int, *, stops: bool) -> None:
    """At least so large a share of the questions."""
    decision = decided(*[seen()] * (20 - showing), *[pairless("never_parses")] * showing, share=share)
    assert (decision.reason is not None) == stops


def test_failed_questions_are_not_counted() -> None:
    """They are asked again; the decision waits for as many others."""
    assert decided(*[None] * 15, *[pairless("never_parses")] * 19).reason is None
    assert decided(*[None] * 15, *[pairless("never_parses")] * 20).reason is not None


def test_a_run_is_not_stopped_after_its_last_question() -> None:
    assert decided(*[pairless("never_parses")] * 20, total=20).reason is None
    assert decided(*[pairless("never_parses")] * 20, total=21).reason is not None


LOOKS: tuple[Look | None, ...] = (
    None,
    seen(),
    pairless("never_parses"),
    pairless("never_parses", "answered_only_when_forced"),
    pairless("identical_siblings"),
    pairless("identical_siblings", "all_wrong"),
    pairless("all_wrong"),
    seen("all_wrong"),
)


@given(
    share=st.sampled_from([0.5, 0.8, 0.95, 1.0]),
    looks=st.lists(st.sampled_from(LOOKS), max_size=20).flatmap(
        lambda some: st.lists(st.sampled_from(some or LOOKS), min_size=30, max_size=150)
    ),
    order=st.randoms(use_true_random=False),
)
def test_the_decision_is_the_same_in_any_order(share: float, looks: list[Look | None], order: random.Random) -> None:
    """Trees that end early are counted in their turn."""
    decision = StopDecision(share, len(looks))
    for position in order.sample(range(len(looks)), len(looks)):
        decision.add(position, looks[position])
    assert decision.reason == decided(*looks, share=share, total=len(looks)).reason


# -- in a run --------------------------------------------------------------------------------------------------

GOLDEN = {each["question"]: each["golden_answers"][0] for each in atlas.questions("train")}


def scripted(think: Callable[[ChatRequest, int, str], str], *, none: bool = False) -> Script:
    """A teacher whose think turn is given (the last argument is different in every draw), who reads something
    different each time, or nothing in two draws of three, and concludes with something wrong.
    """

    def script(request: ChatRequest, position: int) -> str:
        own = f"x{request.seeds[position]}"
        if turn(request) == THINK:
            return think(request, position, own)
        if turn(request) == READ:
            found = "None" if none and request.samples[position] % 3 else own
            return f"So the evidence is <evidence>{found}</evidence>"
        return f"So the answer is <answer>{own}</answer>"

    return script


def asks(content: str) -> str:
    return f"So the next query is <query>{content}</query>"


def says(content: str) -> str:
    return f"So the answer is <answer>{content}</answer>"


def question_of(request: ChatRequest) -> str:
    return request.messages[1].content.partition("\n")[0].removeprefix("Question: ")


def queries_of(request: ChatRequest) -> list[str]:
    return re.findall("<query>(.*?)</query>", request.messages[1].content)


def searches_once(answering: Callable[[ChatRequest, str], str]) -> Script:
    return scripted(lambda request, _, own: says(answering(request, own)) if queries_of(request) else asks(own))


def never_stops_reasoning(request: ChatRequest, position: int) -> Completion:
    return Completion(
        text=f"<think>Perhaps <query>x{request.seeds[position]}</query>, or",
        finish_reason="length",
        requests=int(position == 0),
    )


TEACHERS: dict[str, Script] = {
    "only_reasoning": never_stops_reasoning,
    "identical_siblings": lambda request, _: reply(request.messages, temperature=1, seed=0, choice=0),
    "never_parses": scripted(lambda _request, _position, own: f"I think it is {own}."),
    "answered_only_when_forced": scripted(lambda _request, _position, own: asks(own)),
    "instant_answer": scripted(lambda _request, _position, own: says(own)),
    "none_loop": scripted(lambda request, _, own: says(own) if queries_of(request) else asks(own), none=True),
    "all_wrong": searches_once(lambda _request, own: own),
    "all_right": searches_once(lambda request, _own: GOLDEN[question_of(request)]),
}
"""A teacher for every sign: what it does wrong is what the sign says."""


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
def test_a_run_with_such_a_teacher_is_told_and_stopped(sign: Sign) -> None:
    """Said once, with its remedy, long before it stops; stopped cleanly with everything kept, and not before time. What
    ended before is kept, too."""
    model, watcher = ScriptedModel(TEACHERS[sign.name], name="broken"), Listener()
    last = stops_from(sign)
    # what is known by heart stands in no evidence
    small = {"outcome": "f1", "set": "search.simulations=6", "concurrency": 4}
    summary = package.generate(
        dataset="atlas", limit=last + 20, run="runs/a", chat_model=model, watcher=watcher, **small
    )
    assert summary.degenerate[sign.name] >= 0.95 * summary.done
    [said] = [each for each in watcher.warnings if each.startswith(f"{sign.words} in ")]
    assert sign.remedy in said
    assert any(each.startswith(f"{sign.words} in ") for each in summary.warnings)
    assert summary.stopped is not None
    assert summary.stopped.cause == "degenerate"
    assert f"{sign.words} in {last} of {last} questions" in summary.stopped.message
    assert last <= summary.done < last + 4
    assert len(list(read_rollouts(Path("runs/a/rollouts.jsonl")))) == summary.done
    assert Path("runs/a/journal.jsonl").stat().st_size > 0


def test_the_command_line_says_what_is_wrong_and_how_to_go_on(reasonrag: Reasonrag) -> None:
    """Status 1, sign, share, remedy and page in the message; the printed command goes on regardless, to the end."""
    flags = ["generate", "--dataset", "atlas", "--limit", 30, "--set", "search.simulations=3", "--run", "runs/a"]
    done = reasonrag(*flags, "--temperature", 0, "--concurrency", 4)
    assert done.status == 1
    assert "warning: identical siblings in 10 of 10 questions" in done.err
    assert "stopped: identical siblings in 20 of 20 questions" in done.out
    assert f"{PAGE}#identical-siblings. To continue anyway: --abort-degenerate 0" in done.out
    assert re.search(r"degenerate\s+│ identical siblings 2\d", done.out)
    command = done.err.partition("continue with: ")[2]
    assert command.endswith("--abort-degenerate 0")
    assert reasonrag(*shlex.split(command)[1:]).status == 0
    assert len(Path("runs/a/rollouts.jsonl").read_bytes().splitlines()) == 30


def test_a_stopped_run_goes_on_only_if_told_to_and_pays_nothing_again() -> None:
    """The same command stops at the same question and asks nothing; other settings of the stop go on."""
    settings: dict[str, Any] = {"set": "search.simulations=3", "limit": 30, "concurrency": 8, "run": "runs/a"}
    broken = ScriptedModel(TEACHERS["identical_siblings"], name="m")
    assert package.generate(**settings, chat_model=broken).stopped is not None
    stopped, asked = Path("runs/a/rollouts.jsonl").read_bytes(), len(broken.requests)
    summary = package.generate(**settings, chat_model=broken)
    assert (summary.stopped is not None, len(broken.requests)) == (True, asked)
    assert Path("runs/a/rollouts.jsonl").read_bytes() == stopped
    summary = package.generate(**settings, chat_model=broken, abort_degenerate=0)
    assert (summary.stopped, summary.done) == (None, 30)
    keys = [key for line in rows(Path("runs/a/journal.jsonl")) for key in line["keys"]]
    assert len(keys) == len(set(keys)) == sum(len(each.samples) for each in broken.requests)
    assert package.generate(**settings, chat_model=broken).stopped is None, "nothing was left to ask"


def test_a_run_stops_after_the_same_question_at_any_concurrency() -> None:
    """Four of five questions never parse and end long before the others; they are counted in file order. Those
    up to the stop have the same bytes, and later ones that had ended stay."""
    order = {question: position for position, question in enumerate(GOLDEN)}

    def hasty(request: ChatRequest, position: int) -> Any:
        if order[question_of(request)] % 5 == 0:
            return reply(request.messages, temperature=1, seed=request.seeds[position], choice=0)
        return TEACHERS["never_parses"](request, position)

    ends = set()
    for concurrency in (1, 16, 64):
        settings: dict[str, Any] = {"limit": 60, "concurrency": concurrency, "run": f"runs/{concurrency}"}
        hurried = ScriptedModel(hasty, name="hasty")
        asked = settings | {"dataset": "atlas", "set": "search.simulations=4", "abort_degenerate": 0.8}
        summary = package.generate(chat_model=hurried, **asked)
        assert summary.stopped is not None
        first = Path(f"runs/{concurrency}/rollouts.jsonl").read_bytes().splitlines()[:20]
        ends.add((summary.stopped.message, *first))
    [(message, *_)] = ends
    assert message.startswith("never parses in 16 of 20 questions")


def test_an_honest_run_over_hard_questions_is_not_stopped(shared_data: Path) -> None:
    """BM25 over real passages, and a teacher that finds nothing in 19 of 20 questions: a warning, but no stop."""
    source = open_questions(shared_data / "musique" / "train.jsonl", dataset="musique", split="train")
    hard = {each.question for number, each in enumerate(source.read()) if number % 20}

    def finds_nothing(request: ChatRequest, position: int) -> str:
        if turn(request) == READ and question_of(request) in hard:
            return "So the evidence is <evidence>None</evidence>"
        return reply(request.messages, temperature=1, seed=request.seeds[position], choice=0)

    teacher, watcher = ScriptedModel(finds_nothing, name="honest"), Listener()
    summary = package.generate(
        dataset="musique", data_dir=shared_data, limit=40, run="runs/a", chat_model=teacher, watcher=watcher
    )
    assert (summary.stopped, summary.done) == (None, 40)
    assert summary.degenerate["none_loop"] >= 0.95 * 40
    assert any(each.startswith("none loop in ") for each in watcher.warnings)


def test_a_rehearsal_is_neither_stopped_nor_blamed(reasonrag: Reasonrag) -> None:
    """The offline teacher of --dry-run stands in for another one; its habits are nobody's concern."""
    done = reasonrag("generate", "--dataset", "atlas", "--temperature", 0, "--run", "runs/a", "--dry-run")
    assert done.status == 0
    assert "warning" not in done.err
    assert "20 questions rehearsed" in " ".join(done.out.split())
