"""Warm-up rows: what the teacher is asked, what costs a question its rows, and that rows are what the agent asks."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from preference import Message
from preference.candidate_records import QuestionRecord, read_lines
from preference.export.formats import messages_of
from preference.records import title_key
from reasonrag.curation.warm_up.decompositions import Passages
from reasonrag.curation.warm_up.teaching import Chosen
from reasonrag.data.questions import Question
from reasonrag.errors import CapReached, ModelError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.offline import reply
from reasonrag.training.llamafactory.dataset_info import entry_for, read_training_data, validation_entry
from tests.helpers.command_line import Reasonrag
from tests.helpers.scripted_model import ScriptedModel

TEXTS = (
    ("Longwood", "Napoleon died at Longwood House on 5 May 1821."),
    ("Napoleon", "Napoleon was Emperor of the French."),
    ("Elba", "Elba is an island of Italy."),
    ("Waterloo", "Waterloo lies in Belgium."),
)


def question(number: int = 1, steps: list[tuple[str, str, int]] | None = None, **more: Any) -> dict[str, Any]:
    """In MuSiQue's own form: when the Emperor of the French died."""
    steps = steps or [("Emperor of the French >> name", "Napoleon", 1), ("When did #1 die?", "May 5, 1821", 0)]
    return {
        "id": f"2hop__{number}",
        "question": f"{number}: when did the Emperor of the French die?",
        "answer": "May 5, 1821",
        "answer_aliases": ["fifth of May of 1821"],
        "paragraphs": [
            {"idx": place, "title": title, "paragraph_text": text, "is_supporting": place < 2}
            for place, (title, text) in enumerate(TEXTS)
        ],
        "question_decomposition": [
            {"question": asked, "answer": answer, "paragraph_support_idx": idx} for asked, answer, idx in steps
        ],
    } | more


def written(home: Path, *questions: dict[str, Any]) -> Path:
    (home / "musique").mkdir(parents=True, exist_ok=True)
    path = home / "musique" / "train.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in questions), "utf-8")
    return path


def offline(request: ChatRequest, _: int = 0) -> str:
    return reply(request.messages, temperature=1, seed=0, choice=0)


def with_line(text: str, number: int, more: str) -> str:
    """A reply of numbered lines with more in one of them."""
    return re.sub(rf"^{number}\. .*$", lambda found: f"{found[0]} {more}", text, count=1, flags=re.MULTILINE)


def records(out: Path) -> list[QuestionRecord]:
    return list(read_lines(out / "questions.jsonl", QuestionRecord))


def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "sft.json").read_bytes())
    return found


@pytest.mark.parametrize(("agent", "steps"), [("reasonrag", 5), ("prorag", 5), ("react", 3), ("tools", 3)])
def test_rows_are_what_the_agent_asks_and_says_at_evaluation(agent: Any, steps: int, tmp_path: Path) -> None:
    """Byte by byte: a model that replies as a row does is asked exactly the rows, and is right."""
    file = written(tmp_path, question())
    reasonrag.warm_up(questions=file, agent=agent, model="offline", out=tmp_path / "out", validation=0)
    made = rows(tmp_path / "out")
    replies = {tuple(Message(**each) for each in messages_of(row)): row["output"] for row in made}
    asked = Question.model_validate(question())
    subs = Passages(None, [asked]).sub_questions(asked, top_k=3, seed=0, most=4)
    found = Chosen(each.shown for each in subs)
    model = ScriptedModel(lambda request, _: replies[request.messages])
    report = reasonrag.evaluate(
        questions=file, agent=agent, chat_model=model, retriever=found, max_steps=10, run=tmp_path / "eval"
    )
    assert (len(made), len(model.requests), report.metrics["em"].value) == (steps, steps, 1.0)
    for title, sub in zip(("Napoleon", "Longwood"), subs, strict=True):
        assert {each.title for each in sub.shown} == {title, "Elba", "Waterloo"}


def test_rows_are_an_ordinary_data_set_that_train_takes(tmp_path: Path) -> None:
    file = written(tmp_path, *(question(number) for number in range(4)))
    made = reasonrag.warm_up(questions=file, agent="prorag", model="offline", out=tmp_path / "out")
    assert made.files["sft.json"] == 15
    assert made.files["sft.validation.json"] == 5
    assert not [each for each in made.warnings if "pair was kept" in each]
    data = read_training_data(tmp_path / "out")
    entry = entry_for(data, "sft", None)
    assert validation_entry(data, entry) is not None
    assert data.objection(entry) is None
    asked = reasonrag.check_renderer(tmp_path / "out")
    assert (asked.agent, asked.top_k, asked.max_steps) == (("prorag",), (3,), (10,))
    assert reasonrag.audit(tmp_path / "out").errors == []
    flags: dict[str, Any] = {"repo": "a/b", "license": "mit", "allow": ["no_contamination_check"], "dry_run": True}
    card = Path(reasonrag.publish(tmp_path / "out", **flags).folder, "README.md").read_text("utf-8")
    assert "20 rows to fine-tune an agentic RAG policy on, of 4 questions" in card
    assert ["stage: sft" in card, "preference" in card, "chosen" in card] == [True, False, False]


UNUSABLE = {
    "no_decomposition": question(question_decomposition=None),
    "malformed": question(steps=[("", "Napoleon", 1)]),
    "no_such_step": question(steps=[("Who is #3?", "Napoleon", 1), ("When did #1 die?", "May 5, 1821", 0)]),
    "cycle": question(steps=[("Who is #2?", "Napoleon", 1), ("When did #1 die?", "May 5, 1821", 0)]),
    "no_passage": question(steps=[("Who was emperor?", "Napoleon", 9)]),
    "answer_not_in_passage": question(steps=[("Who was emperor?", "Wellington", 1)]),
    "too_many_steps": question(steps=[("Who was emperor?", "Napoleon", 1)] * 5),
}


def test_what_cannot_be_used_is_left_out_with_its_cause_and_costs_nothing(tmp_path: Path) -> None:
    broken = [each | {"id": cause} for cause, each in UNUSABLE.items()]
    apart = question(2, steps=[("Who was emperor?", "Napoleon", 1)], answer="Emperor", answer_aliases=[])
    model = ScriptedModel(offline)
    file = written(tmp_path, *broken, question(), apart)
    made = reasonrag.warm_up(questions=file, chat_model=model, out=tmp_path / "out").warm_up
    assert made["left_out"] == dict.fromkeys(UNUSABLE, 1)
    assert {each.question_id: each.error.cause for each in records(tmp_path / "out") if each.error} == {
        cause: cause for cause in UNUSABLE
    }
    assert (made["with_rows"], made["gold_apart"], len(model.requests)) == (2, ["2hop__2"], 4)


def test_a_file_without_anything_usable_is_refused_by_what_it_lacks(tmp_path: Path, reasonrag: Reasonrag) -> None:
    file = written(tmp_path, UNUSABLE["no_decomposition"])
    done = reasonrag("warm-up", "--questions", file, "--model", "offline")
    assert done.status == 2
    assert "question_decomposition" in done.err
    assert "MuSiQue" in done.err
    done = reasonrag(
        "warm-up", "--questions", written(tmp_path, question()), "--model", "offline", "--agent", "search-o1"
    )
    assert done.status == 2
    assert "take reasonrag, react, prorag, tools" in done.err


@pytest.mark.parametrize(
    ("tag", "say", "cause"),
    [
        ("questions", lambda _: "I would first look for the emperor.", "unreadable"),
        ("steps", lambda _: "<steps>First the emperor, then his death.</steps>", "counts_differ"),
        ("steps", lambda said: said.replace("5. ", ""), "counts_differ"),
        ("steps", lambda said: said.replace("1. ", "6. ").replace("2. ", "1. ").replace("6. ", "2. "), "counts_differ"),
        ("questions", lambda _: "<questions>\n1. Who was it?\n2. Who was it?\n</questions>", "repeated_query"),
        ("questions", lambda said: with_line(said, 1, "He died on 1821-05-05."), "later_answer"),
        ("steps", lambda said: with_line(said, 1, "It is NAPOLEON, I guess."), "later_answer"),
        ("steps", lambda said: with_line(said, 1, "Napoleon\u2019s death is what matters."), "later_answer"),
        ("steps", lambda said: with_line(said, 1, "First I look.\nA Napoleon-like man, it seems."), "later_answer"),
        ("steps", lambda said: with_line(said, 2, "He died on the 5th of May, 1821."), "later_answer"),
        ("steps", lambda said: with_line(said, 1, "Perhaps the fifth of May of 1821"), "later_answer"),
        ("questions", lambda said: with_line(said, 1, "<step>"), "no_step"),
    ],
)
def test_what_the_teacher_does_wrong_costs_the_question_its_rows(
    tag: str, say: Any, cause: str, tmp_path: Path
) -> None:
    def teacher(request: ChatRequest, _: int) -> str:
        said = offline(request)
        system, user = (each.content for each in request.messages[:2])
        return say(said) if f"<{tag}>" in system and "1: when" in user else said

    made = reasonrag.warm_up(
        questions=written(tmp_path, question(), question(2)),
        agent="prorag",
        chat_model=ScriptedModel(teacher),
        out="out",
    )
    assert made.warm_up["left_out"] == {cause: 1}
    assert [each.error and each.error.cause for each in records(Path("out"))] == [cause, None]


def test_what_was_paid_is_kept_and_a_failure_is_asked_again(tmp_path: Path) -> None:
    """A cap stops it, the same call goes on, and the end is that of a session without a stop."""
    file = written(tmp_path, *(question(number) for number in range(4)))
    whole = reasonrag.warm_up(questions=file, chat_model=ScriptedModel(offline), out="whole")
    with pytest.raises(CapReached):
        reasonrag.warm_up(questions=file, chat_model=ScriptedModel(offline), out="out", max_calls=3)

    def failing(request: ChatRequest, _: int) -> str:
        if "3: when" in str(request.messages[1]):
            raise ModelError("overloaded", cause="server")
        return offline(request)

    made = reasonrag.warm_up(questions=file, chat_model=ScriptedModel(failing), out="out")
    assert made.warm_up["failed"] == {"server": 1}
    last = ScriptedModel(offline)
    made = reasonrag.warm_up(questions=file, chat_model=last, out="out")
    assert {"3: when" in str(each.messages[1]) for each in last.requests} == {True}
    assert made.sha256 == whole.sha256
    assert Path("out/questions.jsonl").read_bytes() == Path("whole/questions.jsonl").read_bytes()


def test_questions_of_an_evaluation_split_are_left_out_before_they_cost_anything(tmp_path: Path) -> None:
    file = written(tmp_path, question(), question(2))
    file.with_name("dev.jsonl").write_text(json.dumps(question(2)) + "\n", "utf-8")
    model = ScriptedModel(offline)
    made = reasonrag.warm_up(questions=file, chat_model=model, out="out")
    assert (made.warm_up["with_rows"], made.contamination["dropped"], len(model.requests)) == (1, 1, 2)
    assert reasonrag.warm_up(questions=file, model="offline", out="all", allow_eval="all").warm_up["with_rows"] == 2


def test_a_dry_run_says_the_price_and_asks_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(offline, name="gpt-4o")
    made = reasonrag.warm_up(questions=written(tmp_path, question()), chat_model=model, out="out", dry_run=True)
    assert re.match(r"about \$0\.\d+ to \$0\.\d+ for 2 to 4 requests to gpt-4o", made.warm_up["expected"])
    assert (model.requests, Path("out").exists()) == ([], False)


# -- on MuSiQue ------------------------------------------------------------------------------------------------


def musique(shared_data: Path) -> list[dict[str, Any]]:
    texts = [(shared_data / f"musique/{part}.jsonl").read_text("utf-8") for part in ("train", "dev")]
    return [json.loads(line) for text in texts for line in text.split("\n") if line]


def made_of(home: Path, corpus: Path, questions: list[dict[str, Any]], say: Any) -> dict[str, str | None]:
    """The cause for which each question was left out; None: it has rows."""
    file, teacher = written(home, *questions), ScriptedModel(say)
    reasonrag.warm_up(questions=file, corpus=corpus, agent="prorag", chat_model=teacher, out=home / "out")
    return {each.question_id: each.error.cause if each.error else None for each in records(home / "out")}


def in_other_words(request: ChatRequest, _: int = 0) -> str:
    """A sound teacher that tells everything it may: the question, what is known, and what it asks for."""
    asked, *steps = request.messages[1].content.splitlines()
    if "<questions>" in request.messages[0].content:
        return offline(request).replace("What is the", "Could you tell me the")
    known, lines = f"I was asked: {asked}", list[str]()
    for number, step in enumerate(steps, start=1):
        known += f" By now: {step.partition(': ')[2].upper()}."
        lines.append(f"{number}. {known}")
    return "\n".join(["<steps>", *lines, "</steps>"])


MONTHS = "January February March April May June July August September October November December".split()
DATES = (
    (re.compile(rf"({'|'.join(MONTHS)}) (\d{{1,2}}), (\d{{4}})"), r"\2 \1 \3"),
    (re.compile(rf"(\d{{1,2}}) ({'|'.join(MONTHS)}) (\d{{4}})"), r"\2 \1, \3"),
)


def test_on_musique_faults_are_caught_and_sound_rows_are_kept(shared_data: Path, tmp_path: Path) -> None:
    """The figures of benchmarks/RESULTS.md: the offline teacher, 100 planted faults, 200 sound questions."""
    every, corpus = musique(shared_data), shared_data / "musique/corpus.jsonl"
    plain = made_of(tmp_path / "plain", corpus, every[:150] + every[-50:], offline)
    rows_for = sum(cause is None for cause in plain.values())
    told = made_of(tmp_path / "told", corpus, every, in_other_words)
    sound = [each for each, cause in told.items() if cause != "answer_not_in_passage"][:200]
    lost = {each: told[each] for each in sound if told[each]}
    planted, faulty = plant([each for each in every if told[each["id"]] is None])

    def wrong(request: ChatRequest, _: int) -> str:
        said, (kind, text) = offline(request), planted[request.question_id]
        first = "<questions>" in request.messages[0].content
        if kind == "count" and first == (len(request.question_id) % 2 == 0):
            return said.replace("\n1. ", "\n")
        return with_line(said, 1, f"Maybe {text}.") if kind.startswith("query" if first else "thought") else said

    caught = made_of(tmp_path / "faulty", corpus, faulty, wrong)
    kinds, missed = Counter(kind for kind, _ in planted.values()), [each for each, cause in caught.items() if not cause]
    print(f"rows {rows_for}/200; caught {len(caught) - len(missed)} of {dict(kinds)}; lost of 200 sound: {len(lost)}")
    assert rows_for >= 180
    assert len(planted) == len(caught) == 100
    assert len(missed) <= 5, [(planted[each], each) for each in missed]
    assert len(sound) == 200
    assert len(lost) <= 4, lost


def plant(questions: list[dict[str, Any]]) -> tuple[dict[str, tuple[str, str]], list[dict[str, Any]]]:
    """A fault for each of 100 questions: a kind, and what the teacher says too early."""
    found, faulty = dict[str, tuple[str, str]](), list[dict[str, Any]]()
    wanted = Counter(thought_date=5, query_date=3, thought_alias=17, query_alias=13, thought_case=12, query_case=13)
    wanted += Counter(count=15, paragraph=10, thought_owner=8, query_owner=4)
    for number, each in enumerate(questions):
        asked, steps = each["question"].casefold(), each["metadata"]["question_decomposition"]
        answer, aliases = steps[-1]["answer"], [a for a in each["golden_answers"] if len(a) > 3]
        aliases = [a for a in aliases if title_key(a) != title_key(answer) and a.casefold() not in asked]
        dated = [form.sub(other, answer) for form, other in DATES if form.fullmatch(answer)]
        says = {"date": dated, "alias": aliases, "case": [answer.upper(), answer.lower()], "count": [""]}
        says["owner"] = [f"{answer}'s"]
        if answer.casefold() in asked or answer.casefold() in str(steps[:-1]).casefold():
            continue
        for kind in wanted:
            options = says.get(kind.partition("_")[2] or kind, [""])
            if wanted[kind] and options:
                wanted[kind] -= 1
                found[each["id"]] = kind, options[number % len(options)]
                other = questions[number - 7]["metadata"]["question_decomposition"][0]["support_id"]
                if kind == "paragraph":
                    steps[number % len(steps)]["support_id"] = other
                faulty.append(each)
                break
    return found, faulty
