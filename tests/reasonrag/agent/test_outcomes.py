"""Answers without golden ones: who values them, what a judge sees, and what a run makes of what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from mcts import RECIPES, Recipe
from preference import FinalScore, PairingRules, candidates
from preference.records import Outcome, UnreadableJudgement
from reasonrag.agent.prompting import load_prompts
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.offline import reply
from tests.helpers.command_line import CORPUS, Reasonrag
from tests.helpers.jsonl import write_passages, write_rows
from tests.helpers.scripted_model import RecordedOffline, Script, ScriptedModel
from tests.helpers.trees import trees
from tests.reasonrag.agent.conftest import OPEN, Explored

PROMPTS = load_prompts()
GOLDEN = "zq-golden-4711"
ASKED = OPEN.question

QUERY = "So the next query is <query>capital of France</query>"
SECOND_QUERY = "So the next query is <query>river Tiber</query>"
EVIDENCE = "<evidence>It lies on the Seine.</evidence>"
SEINE = "So the answer is <answer>Seine</answer>"
TIBER = "So the answer is <answer>Tiber</answer>"
NO_TAG = "I would rather not say."

QUESTIONS = (
    {"id": "q1", "question": ASKED},
    {"id": "q2", "question": "Which river does the capital of Italy lie on?", "golden_answers": []},
    {"id": "q3", "question": "What are cats?", "golden_answers": None},
    {"id": "q4", "question": "In which continent is France?", "golden_answers": ["", " "]},
)


def write_questions(*questions: dict[str, Any]) -> Path:
    return write_rows(Path("own.jsonl"), questions)


OWN = ["--questions", "own.jsonl", "--corpus", "corpus.jsonl"]


@pytest.fixture(autouse=True)
def own_files() -> None:
    """One's own questions, without golden answers, and a corpus."""
    write_passages(Path("corpus.jsonl"), CORPUS)
    write_questions(*QUESTIONS)


def flags(**more: Any) -> dict[str, Any]:
    """The flags of a run on them, with a teacher that costs nothing."""
    small = {"set": "search.simulations=4"} | more
    return {"questions": "own.jsonl", "corpus": "corpus.jsonl", "model": "offline"} | small


def decided(run: str = "runs/a") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "config.json").read_text())["decides_answers"]
    return found


def summary(run: str = "runs/a") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "summary.json").read_text())
    return found


def judges_answers(request: ChatRequest) -> bool:
    return request.sampling.stop == ("</score>",) and "\nAnswer: " in request.messages[1].content


# -- end to end ------------------------------------------------------------------------------------------------


def test_questions_without_golden_answers_become_pairs_by_a_judge(reasonrag: Reasonrag) -> None:
    """F1 and EM are unknown, which is not 0, and no pair is tagged as differing in style only. A `rubric` that is no
    text is left alone."""
    write_questions(*({**each, "metadata": {"rubric": {"points": 3}}} for each in QUESTIONS))
    command = ["generate", *OWN, "--model", "offline", "--outcome", "judge", "--run", "runs/a"]
    done = reasonrag(*command)
    assert done.status == 0, done.err
    assert "│ mean F1 / EM │ - / - │" in " ".join(done.out.split())
    assert "mean judge outcome" in done.out
    for rollout in trees():
        assert (rollout.golden_answers, rollout.recipe.outcome, rollout.rubric) == ([], "judge", None)
        assert rollout.recipe.judge_sees_gold is False
        ends = [node for node in rollout.nodes if node.terminal]
        assert all((node.f1, node.em) == (None, None) for node in ends)
        assert {node.outcome.name for node in ends if node.outcome} == {"judge"}
        assert {end.f1 for end in rollout.ends} == {None}
        assert rollout.usage.judgements > 0
    assert (summary()["mean_f1"], summary()["mean_em"], summary()["outcome"]) == (None, None, "judge")
    assert 0 < summary()["mean_outcome"] < 1
    made = reasonrag("pairs", "runs/a", "--out", "data/a", "--min-confidence", 0)
    assert made.status == 0, made.err
    rows = json.loads(Path("data/a/RAG_ProGuide.json").read_text())
    assert rows
    assert all(row["chosen_reward"] > row["rejected_reward"] for row in rows)
    assert not any("style_only" in row["tags"] for row in rows)


GOLD = {"golden_answers": ["Seine"], "metadata": {"rubric": ["names a river"]}}
REHEARSED: dict[str, tuple[list[object], bool]] = {
    "generate by a judge of answers": (["generate", *OWN, "--outcome", "judge"], True),
    "tune of ranks by a judge": (
        ["tune", *OWN, "--recipe", "ragym", "--vary", "search.siblings=3,4,6", "--pilot", 2],
        True,
    ),
    "generate by evidence": (["generate", *OWN], False),
    "evaluate with a judge": (["evaluate", *OWN, "--judge", "offline"], True),
    "pairs of a judged run": (["pairs", "judged", "--out", "data"], True),
    "pairs by a judge": (["pairs", "plain", "--out", "data", "--label", "judge"], True),
    "calibrate of a judged run": (["calibrate", "judged"], True),
}


@pytest.mark.parametrize(("command", "warned"), REHEARSED.values(), ids=REHEARSED.keys())
def test_the_offline_teacher_as_judge_says_that_its_scores_mean_nothing(
    command: list[object], warned: bool, reasonrag: Reasonrag
) -> None:
    """Said in every command whose numbers rest on them, and in none of the others."""
    write_questions(QUESTIONS[0] | GOLD)
    if command[0] in ("pairs", "calibrate"):
        outcome = "judge" if "judged" in str(command[1]) else "f1"
        package.generate(**flags(run=command[1], outcome=outcome))
    else:
        command = [*command, "--run", "runs/a"]
    if command[0] != "calibrate" and "--model" not in command and (command[0] != "pairs" or "judge" in command):
        command = [*command, "--model", "offline"]
    done = reasonrag(*command)
    assert done.status == 0, done.err
    assert ("which compares words and understands none" in done.out + done.err) is warned


@pytest.mark.parametrize(
    ("language", "gold", "said", "reported", "worth"),
    [
        ("de", "1450", "1.450", "1.450", 1.0),
        ("en", "1450", "1.450", "1.450", 0.0),
        # the evidence writes it as the corpus does, and supports the answer
        ("de", "1450 Euro", "1450 Euro", "1.450 Euro", 1.0),
        ("en", "1450 Euro", "1450 Euro", "1.450 Euro", 0.0),
    ],
)
def test_a_point_before_three_digits_is_read_as_the_language_of_the_corpus_writes_it(
    language: str, gold: str, said: str, reported: str, worth: float
) -> None:
    """Of labels, and of the evidence that supports them."""
    write_questions(QUESTIONS[0] | {"golden_answers": [gold]})

    def reply_of(request: ChatRequest, _position: int) -> str:
        shown = request.messages[-1].content
        if f"It is {reported}." in shown:
            return f"So the answer is <answer>{said}</answer>"
        return f"<evidence>It is {reported}.</evidence>" if "It lies on" in shown else "So <query>the Seine</query>"

    wanted = flags(run="runs/a", outcome="evident_f1", language=[language])
    package.generate(**wanted, chat_model=ScriptedModel(reply_of))
    found = {each.rollouts[0].quality for each in trees()[0].nodes if each.action_type == "answer"}
    assert found == {worth}


@pytest.mark.parametrize("recipe", [*RECIPES])
def test_every_recipe_can_have_its_answers_judged(recipe: str, reasonrag: Reasonrag) -> None:
    """Answers are judged whatever guides the search, and no draw is asked for twice."""
    few = f"--set=search.{'group' if recipe == 'chains' else 'simulations'}=6"
    command = ["generate", *OWN, "--model", "offline", "--recipe", recipe, few]
    command += ["--outcome", "judge"]
    assert reasonrag(*command, "--run", "runs/a").status == 0
    for rollout in trees():
        ends = [node for node in rollout.nodes if node.action_type == "answer"]
        assert all(node.outcome and node.outcome.value is not None for node in ends)
        assert all(node.reward is not None for node in ends if node.visits)
    keys = Path("runs/a/journal.jsonl").read_text().count('"text"')
    assert keys == summary()["calls"]


def test_a_multiple_choice_is_explored_by_the_option_that_is_named() -> None:
    """1 for the right one alone, by letter or by text; the questions that are asked name all options, and passages have
    to support the option and not its letter."""
    options = {"A": "Tiber", "B": "Seine", "C": "Loire"}
    write_questions({"id": "q1", "question": ASKED, "golden_answers": ["B"], "metadata": {"choices": options}})
    said = iter(["B", "the Seine", "A", "C or B"] * 40)

    def answers(request: ChatRequest, _position: int) -> str:
        if "<reference>" in request.messages[1].content:
            return EVIDENCE
        if "Previous Thoughts" not in request.messages[1].content:
            return QUERY
        return f"So the answer is <answer>{next(said)}</answer>"

    asked = flags(run="runs/a", outcome="choice", set="search.simulations=20")
    package.generate(**asked, chat_model=ScriptedModel(answers))
    [rollout] = trees()
    assert rollout.question == f"{ASKED} Options: (A) Tiber (B) Seine (C) Loire"
    ends = [node for node in rollout.nodes if node.terminal]
    found = {node.content: node.outcome and node.outcome.value for node in ends}
    assert found == {"B": 1.0, "the Seine": 1.0, "A": 0.0, "C or B": 0.0}
    for node in ends:
        right = node.content in {"B", "the Seine"}
        assert (bool(node.reward), node.in_evidence) == (right, right)
        assert (node.f1, node.em) == (right, right)
    assert {node.grounded for node in ends if node.content == "B"} == {True}


# -- bad input -------------------------------------------------------------------------------------------------

WANTS_A_TEXT = "metadata.rubric: must be a text, or a list of texts"


@pytest.mark.parametrize(
    ("more", "rubrics", "message"),
    [
        ([], [None], "own.jsonl, line 1 is not a question (golden_answers: all are blank"),
        (["--rubric", "rubric.txt"], [None], "--rubric rubric.txt goes with --outcome rubric"),
        (["--outcome", "rubric"], [None], "own.jsonl, line 1 is not a question (metadata.rubric: the question has no"),
        (["--outcome", "rubric"], ["Names a river.", " "], "own.jsonl, line 2 is not a question (metadata.rubric: the"),
        (["--outcome", "rubric", "--rubric", "rubric.txt"], [{"river": 1}], WANTS_A_TEXT),
        (["--outcome", "rubric", "--rubric", "empty.txt"], [None], "the rubric empty.txt is empty; write what"),
        (["--outcome", "rubric", "--rubric", "nowhere.txt"], [None], "cannot read the rubric nowhere.txt: No such"),
        (["--outcome", "rubric", "--rubric", "latin.txt"], [None], "the rubric latin.txt is not UTF-8 text"),
        (
            ["--outcome", "juge"],
            [None],
            "--outcome: must be 'f1', 'em', 'evident_f1', 'builder_f1', 'prorag_f1', 'choice', 'judge' or 'rubric'",
        ),
    ],
)
def test_what_cannot_be_valued_is_refused_before_anything_starts(
    more: list[object], rubrics: list[object], message: str, reasonrag: Reasonrag
) -> None:
    """Status 2, the line and the way out, and no run directory; an estimate says the same."""
    Path("rubric.txt").write_text("Names a river.\n")
    Path("empty.txt").write_text(" \n\n")
    Path("latin.txt").write_bytes("Größe".encode("latin-1"))
    write_questions(*({"id": n, "question": ASKED, "metadata": {"rubric": each}} for n, each in enumerate(rubrics)))
    command = ["generate", *OWN, "--model", "offline", *more, "--run", "runs/a"]
    for refused in (reasonrag(*command), reasonrag(*command, "--dry-run")):
        assert refused.status == 2
        assert message in refused.err
    assert not Path("runs/a").exists()


# -- one tree --------------------------------------------------------------------------------------------------


def recipe(base: str = "economy", **changed: Any) -> Recipe:
    """A recipe that samples the question's state once, with four siblings."""
    known = {str(name): each for name, each in RECIPES.items()}[base]
    small = {"siblings": 4, "simulations": 1, "wave": 1, "root_siblings": None, "resamples": 0}
    return known.model_copy(update={"search": known.search.model_copy(update=small), "outcome": "judge"} | changed)


def shown(request: ChatRequest) -> str:
    return request.messages[1].content


def scores(request: ChatRequest) -> str:
    """A judge who likes the Seine."""
    return f"<score>{90 if shown(request).endswith('Answer: Seine') else 20}</score>"


def play(*first: str, judged: Callable[[ChatRequest], str] = scores) -> Script:
    """A teacher that takes these steps first, then reads and answers, and a judge."""

    def script(request: ChatRequest, position: int) -> str:
        if judges_answers(request):
            return judged(request)
        if request.sampling.stop == ("</evidence>",):
            return EVIDENCE
        return SEINE if "Previous Thoughts" in shown(request) else first[request.samples[position] % len(first)]

    return script


async def test_an_answer_is_worth_its_score(explored: Explored) -> None:
    """A share of 100, discounted by the steps it took. A failed step gets 0 without a request. Judgements are counted,
    beyond the budget of the search."""
    record, requests = await explored(play(SEINE, TIBER, QUERY, NO_TAG), recipe())
    worth = {node.response: node for node in record.nodes[1:] if node.layer == 0}
    assert worth[SEINE].outcome == Outcome(name="judge", value=0.9)
    assert worth[TIBER].outcome == Outcome(name="judge", value=0.2)
    assert worth[NO_TAG].outcome == Outcome(name="judge", value=0.0)
    assert [worth[each].reward for each in (SEINE, TIBER, QUERY)] == pytest.approx([0.81, 0.18, 0.9 * 0.9**3])
    assert {(worth[each].f1, worth[each].em) for each in worth} == {(None, None)}
    assert worth[QUERY].rollouts == [FinalScore(f1=None, em=None, steps=3, end="answer", outcome=0.9)]
    judged = [shown(each) for each in requests if judges_answers(each)]
    assert not any(NO_TAG in each for each in judged)
    assert len(judged) == record.usage.judgements == 3


async def test_a_judge_sees_everything_that_was_read_on_the_way(explored: Explored) -> None:
    """Question, passages of all searches, reasoning and answer; the tag of read turns belongs to these alone."""

    def script(request: ChatRequest, position: int) -> str:
        if not judges_answers(request) and shown(request).endswith(f"{QUERY} {EVIDENCE}"):
            return SECOND_QUERY
        return play(QUERY)(request, position)

    _, requests = await explored(script, recipe())
    [judged] = {shown(each) for each in requests if judges_answers(each)}
    lines = judged.splitlines()
    assert lines[0] == f"Question: {ASKED}"
    assert [re.sub(r"Passage \d+: (\w+):.*", r"\1", line) for line in lines[1:-2]] == ["Paris", "France", "Rome"]
    assert lines[-2:] == [f"Reasoning: {QUERY} {EVIDENCE} {SECOND_QUERY} {EVIDENCE} {SEINE}", "Answer: Seine"]


@pytest.mark.parametrize("gold", [False, True])
async def test_golden_answers_reach_the_judge_of_answers_only_with_judge_gold(
    *, gold: bool, explored: Explored
) -> None:
    """They are scored as ever where a question has some; the policy's messages never hold one."""
    question = Question(id="q1", question=ASKED, golden_answers=[GOLDEN])
    record, requests = await explored(play(SEINE, QUERY), recipe(judge_sees_gold=gold), question)
    told = {judges_answers(each) for each in requests if any(GOLDEN in turn.content for turn in each.messages)}
    assert told == ({True} if gold else set())
    assert record.recipe.judge_sees_gold is gold
    assert {node.f1 for node in record.nodes if node.terminal} == {0.0}


async def test_the_teacher_judges_whoever_answered(explored: Explored) -> None:
    """A student that continues is not asked what its answers are worth, and does not pay for it."""

    def student(request: ChatRequest, _position: int) -> str:
        assert not judges_answers(request)
        return EVIDENCE if request.sampling.stop == ("</evidence>",) else TIBER

    record, requests = await explored(play(QUERY), recipe(), values=ScriptedModel(student, name="student"))
    assert [shown(each)[-5:] for each in requests if judges_answers(each)] == ["Tiber"]
    assert record.value_usage
    assert (record.usage.judgements, record.value_usage.judgements) == (1, 0)


# -- judgements that cannot be read ----------------------------------------------------------------------------


def never(_request: ChatRequest) -> str:
    return "Hard to say."


async def test_a_judgement_that_cannot_be_read_is_missing(explored: Explored) -> None:
    """After one repair the answer has no outcome: no number, no reward, no pair, and what is above it is none the
    worse; the reply is kept."""
    judged: Callable[[ChatRequest], str] = lambda each: never(each) if "Tiber" in shown(each) else scores(each)  # noqa: E731
    record, requests = await explored(play(SEINE, TIBER, judged=judged), recipe())
    root, seine, tiber = record.nodes
    assert tiber.outcome == Outcome(name="judge", value=None)
    assert (tiber.reward, tiber.rollouts, set(tiber.rewards.values())) == (None, [], {None})
    assert (root.reward, root.value) == (seine.reward, pytest.approx(0.81))
    assert record.unreadable_judgements == [UnreadableJudgement(kind="answer", node_id=2, response="Hard to say.")]
    asked = [each for each in requests if judges_answers(each)]
    assert [len(each.messages) for each in asked] == [2, 2, 4]
    assert (record.usage.judgements, record.usage.repairs) == (3, 1)
    assert [each.dropped for each in candidates(record, PairingRules())] == ["unvalued"]


@pytest.mark.parametrize(("base", "node_id"), [("economy", 3), ("continuation", 1)])
async def test_a_continuation_without_a_judgement_counts_nowhere(base: str, node_id: int, explored: Explored) -> None:
    """Whether its steps are nodes or not; the search ends all the same."""
    record, _ = await explored(play(QUERY, judged=never), recipe(base))
    assert {each.node_id for each in record.unreadable_judgements} == {node_id}
    assert {each.kind for each in record.unreadable_judgements} == {"answer"}
    assert {node.reward for node in record.nodes} == {None}
    assert record.ends == []


def test_unreadable_judgements_are_counted_under_their_cause() -> None:
    """In the summary; a run whose judge says nothing has trees, and no pairs."""

    def teacher(request: ChatRequest, position: int) -> str:
        if judges_answers(request):
            return "Hard to say."
        return reply(request.messages, temperature=1, seed=request.seeds[0], choice=position)

    done = package.generate(**flags(outcome="judge", run="runs/a", chat_model=ScriptedModel(teacher)))
    missing = sum(len(rollout.unreadable_judgements) for rollout in trees())
    assert done.parse_failures_by_cause["no_answer_score"] == missing > 0
    assert (done.done, done.failed, done.mean_outcome) == (4, 0, None)
    assert package.pairs("runs/a", out="data/a").pairs == 0


# -- rubrics ---------------------------------------------------------------------------------------------------


def test_a_questions_own_rubric_goes_before_that_of_the_run(reasonrag: Reasonrag) -> None:
    """A criterion a line, or an item of a list; the record says which were used, and the judge sees those alone."""
    Path("rubric.txt").write_text("Names a thing.\n\n  Is short.  \n")
    write_questions(
        {"id": "a", "question": ASKED, "metadata": {"rubric": "Names a river.\nNames no city."}},
        {"id": "b", "question": ASKED, "metadata": {"rubric": ["Names a river.", "Says why:\nthe map."]}},
        {"id": "c", "question": ASKED},
    )
    done = reasonrag(
        *("generate", *OWN, "--model", "offline", "--outcome", "rubric", "--rubric", "rubric.txt"),
        *("--set", "search.simulations=2", "--run", "runs/a"),
    )
    assert done.status == 0, done.err
    assert [rollout.rubric for rollout in trees()] == [
        ["Names a river.", "Names no city."],
        ["Names a river.", "Says why:", "the map."],
        ["Names a thing.", "Is short."],
    ]
    assert {rollout.recipe.outcome for rollout in trees()} == {"rubric"}


# -- configuration ---------------------------------------------------------------------------------------------


def test_what_values_answers_is_part_of_the_configuration(reasonrag: Reasonrag) -> None:
    """Another rubric or another prompt of its judge is another run; the prompt of the other judge is not."""
    Path("rubric.txt").write_text("Names a river.")
    command = ["generate", *OWN, "--model", "offline", "--set", "search.simulations=1", "--run", "runs/a"]
    command += ["--outcome", "rubric", "--rubric", "rubric.txt"]
    assert reasonrag(*command).status == 0
    assert len(decided()["rubric_sha256"]) == 64
    Path("prompts").mkdir()
    Path("prompts/answer.txt").write_text("Grade it. <score>..</score>")
    assert reasonrag(*command, "--prompts", "prompts").status == 0
    Path("prompts/rubric.txt").write_text("Grade it. <score>..</score>")
    refused = reasonrag(*command, "--prompts", "prompts")
    assert refused.status == 2
    assert "prompts" in refused.err
    Path("rubric.txt").write_text("Names a city.")
    refused = reasonrag(*command)
    assert refused.status == 2
    assert "rubric_sha256" in refused.err


def test_an_estimate_counts_the_judge(reasonrag: Reasonrag) -> None:
    """Its replies are in the rehearsal, and come on top of what the search may use at most."""
    plain, judged = (
        json.loads(reasonrag("generate", "--limit", 10, "--run", "runs/a", *more, "--dry-run", "--json").out)
        for more in ([], ["--outcome", "judge"])
    )
    assert plain["calls"]["high"] >= 10 * (RECIPES["economy"].search.max_calls or 0)
    for end in ("low", "high"):
        assert judged["calls"][end] > plain["calls"][end]


# -- functions -------------------------------------------------------------------------------------------------


def length(_question: Question, answer: str) -> float:
    """Long answers are better."""
    return min(1.0, len(answer) / 40)


def test_a_function_may_value_answers() -> None:
    """It is recorded under its name, which is a part of the configuration, and needs no golden answers. Without a
    name of its own, records and configuration could not tell it from others."""
    done = package.generate(**flags(outcome=length, run="runs/a"))
    assert (done.failed, done.outcome) == (0, "length")
    ends = [node for rollout in trees() for node in rollout.nodes if node.action_type == "answer"]
    assert ends
    assert all(node.outcome == Outcome(name="length", value=length(OPEN, node.content or "")) for node in ends)
    assert {rollout.usage.judgements for rollout in trees()} == {0}
    assert decided()["recipe"]["outcome"] == "length"
    assert package.estimate(**flags(outcome=length, run="runs/b")).questions == 4
    with pytest.raises(InputError, match=r"recipe\.outcome"):
        package.generate(**flags(outcome="judge", run="runs/a"))
    for function, message in ((lambda *_: 1.0, "has no name to record"), (f1, "the name of a built-in outcome")):
        with pytest.raises(InputError, match=message):
            package.generate(**flags(outcome=function, run="runs/c"))
    assert not Path("runs/c").exists()


@pytest.mark.parametrize(
    ("worth", "message"),
    [
        (
            "no number",
            "the outcome function mine raised ValueError: could not convert string to float: 'no number', for",
        ),
        ("1.5", "the outcome function mine must return a number from 0 to 1; for the answer "),
        ("nan", "it returned nan"),
        (None, "it returned None"),
    ],
)
def test_a_function_that_cannot_say_is_the_questions_error(worth: str | None, message: str) -> None:
    """With the function and the answer it was given."""

    def mine(_question: Question, _answer: str) -> Any:
        return None if worth is None else float(worth)

    done = package.generate(**flags(outcome=mine, run="runs/a"))
    assert done.failures_by_cause == {"outcome": 4}
    assert all(rollout.error and message in rollout.error.message for rollout in trees())


def f1(_question: Question, _answer: str) -> float:
    return 1.0


# -- calibration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["judge", "rubric"])
def test_fresh_continuations_of_a_judged_run_are_judged_afresh(outcome: str, reasonrag: Reasonrag) -> None:
    """And answers as often as other steps are continued: a judge's word is a draw like others. None is asked twice.
    Only the model that judged a run can judge it again: what another one would think is another outcome."""
    write_questions(*({**each, "metadata": {"rubric": ["Names the Seine.", "Names a river."]}} for each in QUESTIONS))
    package.generate(**flags(outcome=outcome, run="runs/a", set={"search.simulations": 16}))
    model = RecordedOffline()
    again: dict[str, Any] = {"revalue": 12, "k": 3, "min_confidence": 0.0}
    found = package.calibrate("runs/a", chat_model=model, **again).revaluation
    assert (found.pairs > 8, found.unvalued) == (True, 0)
    keys = [key for each in model.requests for key in each.keys(model="any")]
    assert len(keys) == len(set(keys)) == found.calls
    judged = [each for each in model.requests if judges_answers(each)]
    assert {each.messages[0].content for each in judged} == {PROMPTS[{"judge": "answer"}.get(outcome, outcome)]}
    of_answers = {pair.chosen_fresh for pair in found.sample if pair.action_type == "answer"}
    assert of_answers
    assert package.calibrate("runs/a", chat_model=model, **again).revaluation == found.model_copy(
        update={"session_calls": 0}
    )
    refused = reasonrag("calibrate", "runs/a", "--revalue", 4, "--model", "gpt-4o")
    assert refused.status == 2
    assert "were judged by its teacher, offline" in refused.err
    assert "give --model offline" in refused.err


def test_a_revaluation_needs_the_function_of_the_run(reasonrag: Reasonrag) -> None:
    """The command line has none; Python takes it again, and no other."""
    package.generate(**flags(outcome=length, run="runs/a", set={"search.simulations": 16}))
    refused = reasonrag("calibrate", "runs/a", "--revalue", 4)
    assert refused.status == 2
    assert "call reasonrag.calibrate('runs/a', outcome=length, ..)" in refused.err

    def another(_question: Question, _answer: str) -> float:
        return 0.5

    with pytest.raises(InputError, match="is the function length"):
        package.calibrate("runs/a", outcome=another, revalue=4, k=2, min_confidence=0.0)
    found = package.calibrate("runs/a", outcome=length, revalue=4, k=2, min_confidence=0.0).revaluation
    assert found.pairs > 0 == found.unvalued
