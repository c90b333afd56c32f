"""Answers without gold answers: what a judge is shown, how long answers are measured, and which of two is better."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from reasonrag.errors import CapReached, InputError, ModelError
from reasonrag.evaluation.comparison_report import PairedComparison
from reasonrag.evaluation.predictions import AnswerSupport, read_predictions
from reasonrag.llm.chat import ChatRequest
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import CORPUS, Reasonrag
from tests.helpers.jsonl import write_passages
from tests.helpers.scripted_model import ScriptedModel, turn

QUESTIONS: list[dict[str, Any]] = [
    {"id": "a", "question": "Where does the Seine flow?", "golden_answers": ["Paris"]},
    {"id": "b", "question": "What are cats like?"},
    {"id": "c", "question": "Is Rome old?", "metadata": {"rubric": ["says yes", "says since when"]}},
]
ANSWERS = {"Where": "Through Paris.", "What are": "Soft. [Cats] They purr [1]. Very [9].", "Is Rome": "Yes."}
Evaluated = Callable[..., Any]


def answering(answers: dict[str, str]) -> ScriptedModel:
    """Reads a passage about the question, then answers, by how the question begins."""

    def say(request: ChatRequest, _position: int) -> str:
        asked = request.messages[1].content.removeprefix("Question: ")
        if "<reference>" in asked:
            return "<evidence>It is so.</evidence>"
        if "<evidence>" not in asked:
            return "So the next query is <query>cats</query>"
        return f"So the answer is <answer>{next(a for q, a in answers.items() if asked.startswith(q))}</answer>"

    return ScriptedModel(say)


def judging(score: int = 80, support: Callable[[int], str] = lambda _: "none") -> ScriptedModel:
    """Gives every answer a score, and every sentence its support by its number."""

    def say(request: ChatRequest, _position: int) -> str:
        if turn(request) == "score":
            return f"So the score is <score>{score}</score>"
        numbers = range(1, request.messages[1].content.count("\nSentence ") + 1)
        return f"<support>{'; '.join(f'{each}: {support(each)}' for each in numbers)}</support>"

    return ScriptedModel(say, name="judge")


@pytest.fixture
def evaluated(retriever: IndexRetriever) -> Evaluated:
    corpus = write_passages(Path("corpus.jsonl"), CORPUS)

    def evaluate(run: str = "evals/a", rows: Any = QUESTIONS, answers: dict[str, str] = ANSWERS, **flags: Any) -> Any:
        Path("own.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
        given = {"questions": "own.jsonl", "corpus": corpus, "retriever": retriever, "top_k": 1, "run": run}
        return package.evaluate(**({"chat_model": answering(answers), "judge_chat_model": judging()} | given | flags))

    return evaluate


def shown(model: ScriptedModel, question: str) -> str:
    return next(each.messages[1].content for each in model.requests if question in each.messages[1].content)


# -- scores without gold answers -------------------------------------------------------------------------------


def test_where_a_question_has_no_gold_answers_all_are_judged_alike_by_what_was_read(evaluated: Evaluated) -> None:
    """Metrics of gold answers are means over those that have some; these tell how often the judge is right."""
    judge = judging()
    report = evaluated(judge_chat_model=judge)
    assert "Correct answer" not in shown(judge, "the Seine")
    assert "Passage 1: Cats:" in shown(judge, "the Seine")
    assert {name: report.metrics[name].n for name in ("em", "cover_em", "recall", "judged_right", "judge_agrees")} == {
        "em": 1,
        "cover_em": 1,
        "recall": 1,
        "judged_right": 3,
        "judge_agrees": 1,
    }
    assert report.metrics["judge_agrees"].value == 1.0
    assert (report.judge_saw_gold, [each.em for each in read_predictions(Path("evals/a"))]) == (
        False,
        [0.0, None, None],
    )


def test_where_every_question_has_gold_answers_the_judge_sees_them(evaluated: Evaluated) -> None:
    judge = judging(score=20)
    report = evaluated(rows=QUESTIONS[:1], judge_chat_model=judge)
    assert "Correct answer: Paris" in shown(judge, "the Seine")
    assert "Passage 1" not in shown(judge, "the Seine")
    assert (report.judge_saw_gold, report.metrics["judge_agrees"].value) == (True, 0.0)


def test_a_rubric_is_the_questions_own_or_that_of_the_file(evaluated: Evaluated) -> None:
    Path("rubric.txt").write_text("is short\n\nis polite\n")
    judge = judging()
    evaluated(judge_chat_model=judge, rubric="rubric.txt")
    assert re.findall(r"Criterion \d: (.*)", shown(judge, "cats like")) == ["is short", "is polite"]
    assert re.findall(r"Criterion \d: (.*)", shown(judge, "Rome")) == ["says yes", "says since when"]


def test_without_any_gold_answer_the_report_says_that_the_judge_is_unchecked(evaluated: Evaluated) -> None:
    report = evaluated(rows=QUESTIONS[1:])
    assert "judge_agrees" not in report.metrics
    assert any("nothing tells how often the judge is right" in each for each in report.warnings)


REFUSED: dict[str, tuple[list[str], str]] = {
    "no judge": ([], "line 2 .*without gold answers, answers are judged: .*evaluate --judge MODEL"),
    "a rubric for no judge": (["--rubric", "r.txt"], "--rubric r.txt is for a judge: add --judge MODEL"),
    "a rubric that is not there": (["--rubric", "r.txt", "--judge", "offline"], "the rubric r.txt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_judged_is_refused(case: str, reasonrag: Reasonrag) -> None:
    given, said = REFUSED[case]
    Path("own.jsonl").write_bytes(b"\n".join(map(orjson.dumps, QUESTIONS)))
    corpus = write_passages(Path("corpus.jsonl"), CORPUS)
    done = reasonrag("evaluate", "--questions", "own.jsonl", "--corpus", corpus, "--model", "offline", *given)
    assert done.status == 2
    assert re.search(said, done.err.replace("\n", " "))


# -- long answers ----------------------------------------------------------------------------------------------

OF_SENTENCES: dict[str, tuple[str, dict[int, str], tuple[int, int, int, int, int]]] = {
    "each by a citation of its own": ("Soft [Cats]. They purr [1].", {1: "1", 2: "1"}, (2, 2, 2, 2, 2)),
    "a citation behind the full stop": ("Soft. [cats] They purr.", {1: "1"}, (2, 1, 1, 1, 1)),
    "a passage that was not read": ("Soft [Dogs].", {1: "1"}, (1, 1, 0, 1, 0)),
    "a passage that does not say so": ("Soft [Cats].", {}, (1, 0, 0, 1, 0)),
    "two passages at once": ("Soft [1, Cats]. Warm [Cats; Dogs].", {1: "1", 2: "1"}, (2, 2, 2, 4, 3)),
    "no citation": ("Soft. Warm! Really?", {2: "1"}, (3, 1, 0, 0, 0)),
    "Chinese": ("猫很软。猫会叫[Cats]。", {2: "1"}, (2, 1, 1, 1, 1)),
    "numbers with a point": ("It has 3.5 legs.", {}, (1, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("case", OF_SENTENCES)
def test_a_long_answer_is_measured_by_its_sentences(case: str, evaluated: Evaluated) -> None:
    """In order: sentences, supported ones, rightly cited ones, citations, right citations."""
    answer, support, counts = OF_SENTENCES[case]
    judge = judging(support=lambda number: support.get(number, "none"))
    evaluated(rows=QUESTIONS[1:2], answers={"What are": answer}, judge_chat_model=judge, style="long")
    [found] = read_predictions(Path("evals/a"))
    fields = ("sentences", "supported", "cited", "citations", "right_citations")
    assert found.support == AnswerSupport(**dict(zip(fields, counts, strict=True)))


def test_a_short_answer_is_not_and_one_that_rests_on_nothing_is_not_asked_about(evaluated: Evaluated) -> None:
    judge = judging()
    evaluated(judge_chat_model=judge)
    assert {turn(each) for each in judge.requests} == {"score"}
    direct = ScriptedModel(lambda *_: "So the answer is <answer>Soft. Warm.</answer>")
    report = evaluated("evals/d", method="direct", chat_model=direct, judge_chat_model=judge, style="long")
    assert {turn(each) for each in judge.requests} == {"score"}
    assert report.metrics["faithfulness"].value == 0.0


@pytest.mark.parametrize("said", ["1: 1", "1: 1; 2: 7", "1: one; 2: none", "1: 1; 1: 1; 3: 1", ""])
def test_support_that_cannot_be_read_is_counted_and_not_taken(said: str, evaluated: Evaluated) -> None:
    def say(request: ChatRequest, _position: int) -> str:
        return "<score>90</score>" if turn(request) == "score" else f"<support>{said}</support>"

    judge = ScriptedModel(say, name="judge")
    report = evaluated(rows=QUESTIONS[1:2], answers={"What are": "Soft. Warm."}, judge_chat_model=judge, style="long")
    assert (report.unjudged_by_cause, report.owed) == ({"support_unreadable": 1}, 0)
    assert report.metrics["judge_score"].value == 0.9
    assert "faithfulness" not in report.metrics


def test_a_score_is_kept_where_the_support_fails(evaluated: Evaluated) -> None:
    """And the support alone is asked for again."""

    def says(request: ChatRequest, _position: int) -> str:
        if turn(request) == "support":
            raise ModelError("the judge is ill", cause="http_500")
        return "<score>90</score>"

    judge = ScriptedModel(says, name="judge")
    report = evaluated(rows=QUESTIONS[1:2], judge_chat_model=judge, style="long")
    assert (report.unjudged_by_cause, report.owed) == ({"support_http_500": 1}, 1)
    assert (report.metrics["judge_score"].value, report.usage.judge_calls) == (0.9, 1)
    again = judging()
    assert evaluated(rows=QUESTIONS[1:2], judge_chat_model=again, style="long").owed == 0
    assert [turn(each) for each in again.requests] == ["support"]


def test_a_judge_who_contradicts_the_gold_answers_is_a_warning(evaluated: Evaluated) -> None:
    rows = [QUESTIONS[0] | {"id": str(number)} for number in range(10)]
    told = [evaluated(f"evals/{score}", rows=rows, judge_chat_model=judging(score)).warnings for score in (80, 20)]
    assert [[each for each in some if "do not rely on its scores" in each] for some in told] == [
        [],
        ["judge agrees with gold answers on only 0 of 10 answers: do not rely on its scores"],
    ]


def test_an_answer_of_too_many_sentences_has_no_support_and_is_counted(evaluated: Evaluated) -> None:
    report = evaluated(rows=QUESTIONS[1:2], answers={"What are": "Soft. " * 101}, style="long")
    assert report.unjudged_by_cause == {"support_too_long": 1}
    assert "faithfulness" not in report.metrics


def test_another_rubric_may_explain_a_difference(evaluated: Evaluated) -> None:
    Path("one.txt").write_text("is short")
    Path("two.txt").write_text("is long")
    evaluated("evals/a", rubric="one.txt")
    evaluated("evals/b", rubric="two.txt")
    assert any("used rubric" in each for each in package.compare(["evals/a", "evals/b"]).warnings)


CHINESE = {"id": "z", "question": "年假几天?", "golden_answers": ["十五天"]}


def test_the_judges_agreement_with_gold_goes_by_words_of_every_script(evaluated: Evaluated) -> None:
    report = evaluated(rows=[CHINESE, *QUESTIONS[1:]], answers=ANSWERS | {"年假": "年假为十五天。"})
    assert report.metrics["judge_agrees"].value == 1.0


# -- which of two answers is better ----------------------------------------------------------------------------


def preferring(pick: Callable[[str, str], str]) -> ScriptedModel:
    """Picks by the texts of the two candidates."""

    def say(request: ChatRequest, _position: int) -> str:
        one, two = re.findall(r"Candidate \d: (.*)", request.messages[1].content)
        return f"So the pick is <pick>{pick(one, two)}</pick>"

    return ScriptedModel(say, name="judge")


def longer(one: str, two: str) -> str:
    return "1 2" if len(one) > len(two) else "2 1"


BETTER = {"Where": "Through Paris, the capital.", "What are": "Soft.", "Is Rome": "Yes."}


@pytest.fixture
def two(evaluated: Evaluated) -> list[str]:
    """Answers of which the second ones are longer, shorter, and the same."""
    evaluated("evals/a")
    evaluated("evals/b", answers=BETTER)
    return ["evals/a", "evals/b"]


def compared(runs: list[str], judge: ScriptedModel, **flags: Any) -> PairedComparison:
    [pair] = package.compare(runs, judge_chat_model=judge, **flags).pairs
    return pair


def test_a_preference_counts_where_both_orders_agree(two: list[str]) -> None:
    """Equal answers are a tie without asking. Without gold answers for every question the preference decides, and the
    test and the interval are those of every other metric."""
    judge = preferring(longer)
    pair = compared(two, judge)
    assert pair.preferences is not None
    assert (pair.preferences.preferred, pair.preferences.reference_preferred, pair.preferences.ties) == (1, 1, 1)
    assert (pair.decided_by, pair.verdict, pair.wins, pair.losses) == ("preference", "no_difference", ["a"], ["b"])
    assert (pair.metrics["preference"].n, pair.metrics["preference"].value) == (3, 0.0)
    assert pair.tests["preference"] == 1.0
    asked = [each.messages[1].content for each in judge.requests]
    assert len(asked) == 4
    assert not any("Correct answer" in each for each in asked)


def test_where_no_answer_equals_a_gold_one_the_preference_decides(evaluated: Evaluated) -> None:
    """Long answers never do, so EM would call any two of them the same."""
    asked = [each | {"golden_answers": ["x"]} for each in QUESTIONS]
    evaluated("evals/a", asked)
    evaluated("evals/b", asked, answers=BETTER)
    pair = compared(["evals/a", "evals/b"], preferring(longer))
    assert (pair.metrics["em"].n, pair.metrics["em"].value) == (3, 0.0)
    assert (pair.decided_by, pair.wins, pair.losses) == ("preference", ["a"], ["b"])


def test_a_judge_who_prefers_a_place_prefers_nothing(two: list[str]) -> None:
    found = compared(two, preferring(lambda *_: "1 2")).preferences
    assert found is not None
    assert (found.ties, found.turned, found.preferred) == (3, 2, 0)


def test_an_answer_is_better_than_none(evaluated: Evaluated) -> None:
    evaluated("evals/a")
    silent = ScriptedModel(lambda *_: "I cannot say.")
    evaluated("evals/b", chat_model=silent)
    judge = preferring(longer)
    found = compared(["evals/a", "evals/b"], judge).preferences
    assert found is not None
    assert (found.reference_preferred, judge.requests) == (3, [])


def seeds(evaluated: Evaluated, name: str, given: list[dict[str, str]]) -> str:
    """A group of evaluations of one condition."""
    for number, answers in enumerate(given):
        evaluated(f"evals/{name}{number}", answers=answers, seed=number)
    return f"{name}={','.join(f'evals/{name}{number}' for number in range(len(given)))}"


@pytest.mark.parametrize("many", [(2, 3), (3, 1), (1, 2), (2, 2)])
def test_groups_of_any_size_are_compared_by_the_mean_over_their_seeds(
    many: tuple[int, int], evaluated: Evaluated
) -> None:
    """No answer is asked about twice: all seeds of a condition answer alike."""
    groups = [seeds(evaluated, "x", [ANSWERS] * many[0]), seeds(evaluated, "y", [BETTER] * many[1])]
    judge = preferring(longer)
    [pair] = package.compare(group=groups, judge_chat_model=judge).pairs
    assert pair.preferences is not None
    assert sum((pair.preferences.preferred, pair.preferences.reference_preferred, pair.preferences.ties)) == 3 * max(
        many
    )
    delta = pair.metrics["preference"]
    assert (delta.n, delta.value, pair.wins, pair.losses) == (3, 0.0, ["a"], ["b"])
    assert delta.low is not None
    assert delta.high is not None
    assert -1 <= delta.low <= 0 <= delta.high <= 1
    assert len(judge.requests) == 4


def test_what_needs_no_judge_is_decided_by_rule_and_is_no_merit_of_the_judge(evaluated: Evaluated) -> None:
    """Nor does it need a key or an endpoint."""
    rows = QUESTIONS[:1]
    evaluated("evals/a", rows=rows, answers={"Where": "Paris"})
    evaluated("evals/b", rows=rows, chat_model=ScriptedModel(lambda *_: "I cannot say."))
    [pair] = package.compare(["evals/a", "evals/b"], judge="gpt-4o", judge_base_url=["http://127.0.0.1:9"]).pairs
    assert pair.preferences is not None
    assert (pair.preferences.by_rule, pair.preferences.reference_preferred) == (1, 1)
    assert pair.preferences.agrees_with_gold.of == 0


def test_settings_of_a_judge_need_one(two: list[str]) -> None:
    with pytest.raises(InputError, match="`prompts` is for a judge: add `judge` MODEL"):
        package.compare(two, prompts="nowhere")


def test_the_judge_is_held_against_gold_answers_where_one_answer_is_right(evaluated: Evaluated) -> None:
    evaluated("evals/a")
    evaluated("evals/b", answers=ANSWERS | {"Where": "Nowhere near the town that you named."})
    found = compared(["evals/a", "evals/b"], preferring(longer)).preferences
    assert found is not None
    assert (found.agrees_with_gold.of, found.agrees_with_gold.share) == (1, 0.0)


def test_what_was_judged_is_not_paid_again_and_what_failed_is_asked_again(two: list[str]) -> None:
    def fails_once(one: str, other: str) -> str:
        if "Paris" in one:
            raise ModelError("the judge is ill", cause="http_500")
        return longer(one, other)

    first = compared(two, preferring(fails_once), out="cmp").preferences
    assert first is not None
    assert (first.failed, first.unjudged) == (1, 1)
    judge = preferring(longer)
    mended = compared(two, judge, out="cmp").preferences
    assert mended is not None
    assert (mended.failed, len(judge.requests)) == (0, 2)
    with pytest.raises(CapReached):
        compared(two, preferring(longer), out="other", max_calls=1)


def test_an_unreadable_judgement_is_missing_and_no_tie(two: list[str]) -> None:
    found = compared(two, preferring(lambda *_: "both"), out="cmp").preferences
    assert found is not None
    assert (found.unjudged, found.ties, found.failed) == (2, 1, 0)
    assert b"preference" in Path("cmp/failures.jsonl").read_bytes()


def test_the_offline_judge_says_that_it_means_nothing(two: list[str], reasonrag: Reasonrag) -> None:
    done = reasonrag("compare", *two, "--judge", "offline", "--out", "cmp")
    assert done.status == 0, done.err
    assert "preferences mean nothing: for a rehearsal only" in done.err
    assert "in each order" in done.out
    with pytest.raises(InputError, match="there is no evaluation"):
        package.compare(["evals/a", "evals/none"], judge="offline")
