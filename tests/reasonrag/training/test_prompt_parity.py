"""What must agree between a data set and those who ask its model: the renderer, the conditions of its steps,
and what the model's folder says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import reasonrag
from preference.candidate_records import Origin, QuestionRecord, question_key, read_lines
from reasonrag.agent.prompting import load_prompts, render_prompt, save_prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.errors import InputError
from reasonrag.model_folder import PROVENANCE
from reasonrag.training.prompt_parity import check_renderer, prompts_of_training
from reasonrag.training.provenance import Provenance, TrainingConditions, read_provenance

PROMPTS = load_prompts()
OURS = renderer_hash(PROMPTS)
DataSet = Callable[..., Path]


@pytest.fixture
def data_set(tmp_path: Path) -> DataSet:
    """A folder with one question of each origin."""

    def write(*origins: Origin) -> Path:
        folder = tmp_path / "data"
        folder.mkdir()
        lines = [
            QuestionRecord(question_id=str(i), question=f"Question {i}?", golden_answers=["x"], origin=origin).to_line()
            for i, origin in enumerate(origins)
        ]
        (folder / "questions.jsonl").write_bytes(b"".join(lines))
        return folder

    return write


def origin(renderer: str | None = OURS, *, top_k: int | None = 3, max_steps: int | None = 7) -> Origin:
    return Origin(dataset="d", split="train", renderer=renderer, top_k=top_k, retriever="bm25:x", max_steps=max_steps)


# -- the hash ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["think", "read", "conclude", "repair", "judge"])
def test_another_system_prompt_is_another_renderer(name: str) -> None:
    """Every turn that a student is asked in counts, and no other: another judge makes other labels, and the same
    prompts."""
    same = renderer_hash(PROMPTS.changed(**{name: "Do it: {detail} {siblings}"})) == OURS
    assert same == (name not in ("think", "read", "conclude"))


def test_a_place_that_a_trainer_fills_in_is_made_harmless() -> None:
    """LLaMA-Factory puts a number for {{idx}} wherever a user turn has it."""
    _, user = render_prompt(PROMPTS, "think", question="What is {{idx}}?", thoughts=["{{idx}}{{idx}}"])
    assert user.content == "Question: What is (idx)?\nPrevious Thoughts: (idx)(idx)"


# -- a data set ----------------------------------------------------------------------------------------------------


def test_a_run_names_its_renderer_in_every_file_and_agrees_with_its_prompts() -> None:
    """What else must be the same is said: passages, retriever and steps of the run."""
    reasonrag.generate(dataset="atlas", limit=6, run="runs/a", top_k=2)
    summary = reasonrag.pairs("runs/a", out="data/a", format=["sft"])
    assert summary.renderers == [OURS]
    for name in ("RAG_ProGuide.json", "sft.json"):
        assert {row["renderer"] for row in orjson.loads(Path("data/a", name).read_bytes())} == {OURS}
    found = check_renderer("data/a", PROMPTS)
    of_the_run = next(read_lines(Path("data/a/questions.jsonl"), QuestionRecord)).origin
    assert (found.renderer, found.top_k, found.max_steps) == (OURS, (2,), (of_the_run.max_steps,))
    assert (found.retriever, found.warnings) == ((of_the_run.retriever,), ())
    assert found.retriever != (None,)


def test_a_mixture_of_renderers_is_refused_whatever_is_asked(data_set: DataSet) -> None:
    """No prompts fit both; the message has both with their agents and numbers of questions, and how to part them."""
    other = origin("b" * 16).model_copy(update={"agent": "react"})
    mixed = data_set(origin(), other, other)
    for prompts in (None, PROMPTS):
        with pytest.raises(
            InputError, match=rf"{'b' * 16} of the agent react \(2\), {OURS} of the agent reasonrag \(1\)"
        ):
            check_renderer(mixed, prompts)


def test_what_is_known_is_compared_although_some_is_not(data_set: DataSet) -> None:
    """A data set of a run and an import agrees with the prompts of the run, with a warning about the rest, at which
    somebody should look. Failed questions do not count: they have no prompt in the data."""
    folder = data_set(origin(), origin(None, top_k=None, max_steps=4))
    failed = QuestionRecord.model_validate(
        {"question_id": "f", "question": "F?", "golden_answers": [], "origin": origin("b" * 16), "error": ERROR}
    )
    with (folder / "questions.jsonl").open("ab") as file:
        file.write(failed.to_line())
    found = check_renderer(folder, PROMPTS)
    assert (found.renderer, len(found.warnings)) == (OURS, 1)
    assert (found.top_k, found.max_steps) == ((3, None), (4, 7))  # every value that occurs, the unknown one last
    assert "1 of its 2 questions" in found.warnings[0]
    other = PROMPTS.changed(read="Read.")
    with pytest.raises(InputError, match=f"{OURS}.*{renderer_hash(other)}.*`prompts` DIR"):
        check_renderer(folder, other)


ERROR = {"cause": "timeout", "message": "too slow"}


@pytest.mark.parametrize("name", ["RAG_ProGuide.json", "turns.json"])
def test_a_folder_with_nothing_but_rows_is_enough(name: str, tmp_path: Path) -> None:
    """A data set that was downloaded may have no more than the file that is trained on."""
    rows = [{"renderer": OURS}, {"renderer": OURS}, {}]
    (tmp_path / name).write_bytes(orjson.dumps(rows))
    found = check_renderer(tmp_path, PROMPTS)
    assert found.renderer == OURS
    assert found.top_k == (None,)
    assert "1 of its 3 rows" in found.warnings[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (None, b"", "neither questions.jsonl nor RAG_ProGuide.json"),
        ("RAG_ProGuide.json", b"{", "not a list of rows"),
        ("RAG_ProGuide.json", b"[1]", "not a list of rows"),
        ("RAG_ProGuide.json", b'[{"renderer": 1}]', "not a list of rows"),
        ("questions.jsonl", b"{}\n", "line 1 is not a line of reasonrag.questions/1"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(name: str | None, content: bytes, said: str, tmp_path: Path) -> None:
    """What is wrong, where, and what to give."""
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        check_renderer(tmp_path)


def test_the_prompts_of_a_data_set_go_with_the_model(data_set: DataSet, tmp_path: Path) -> None:
    """Those that came out of its rows, unless the user names others, or the rows were replaced since."""
    theirs, given = PROMPTS.changed(begin="Begin.\n"), PROMPTS.changed(think="Think.")
    folder = data_set(origin(renderer_hash(theirs)))
    assert prompts_of_training(folder, None) == (PROMPTS, False)
    save_prompts(theirs, folder / "prompts")
    save_prompts(given, tmp_path / "given")
    assert prompts_of_training(folder, None) == (theirs, True)
    assert prompts_of_training(folder, tmp_path / "given") == (given, True)
    save_prompts(given, folder / "prompts")
    assert prompts_of_training(folder, None) == (PROMPTS, False)


# -- what a model's folder says of its training --------------------------------------------------------------------


ASKED = TrainingConditions(renderer="r1", top_k=(3,), retriever=("bm25 x", None), max_steps=(7,))
NOW = {"renderer": "r1", "top_k": 3, "max_steps": 7}
MODEL = Provenance(
    base_model="Qwen/Qwen2.5-7B-Instruct",
    stage="dpo",
    finetuning_type="lora",
    asked=ASKED,
    data=["data/h"],
    splits=["hotpotqa/dev", "hotpotqa/train"],
    questions=[question_key("Who wrote Faust?")],
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """A folder may say nothing. Questions are recognised however they are spelled, as in the contamination gate, and
    splits that are not for training are named."""
    assert read_provenance(tmp_path) is None
    MODEL.write(tmp_path)
    assert read_provenance(tmp_path) == MODEL
    assert MODEL.trained_on(["who wrote  faust", "Who wrote Emma?"]) == ["who wrote  faust"]
    assert MODEL.evaluation_splits == ["hotpotqa/dev"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": "reasonrag.model/9"}', '{"base_model": 3}'])
def test_a_damaged_file_is_no_silence(content: str, tmp_path: Path) -> None:
    (tmp_path / PROVENANCE).write_text(content)
    with pytest.raises(InputError, match=r"reasonrag\.json is damaged"):
        read_provenance(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("renderer", "r2"), ("top_k", 5), ("max_steps", 8)])
def test_every_difference_is_named(name: str, value: object) -> None:
    """What is the same, or not known, is no objection."""
    assert ASKED.objections(**NOW) == []  # type: ignore[arg-type]
    assert TrainingConditions(top_k=(None,)).objections(**NOW | {"top_k": 9}) == []  # type: ignore[arg-type]
    [(named, sentence)] = ASKED.objections(**NOW | {name: value})  # type: ignore[arg-type]
    assert named == name
    assert str(value) in sentence
