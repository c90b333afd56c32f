"""How far labels can be trusted: the command end to end, and that fresh continuations are fresh, and bought once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

import reasonrag as package
from preference import PairingRules, RolloutRecord, candidates
from reasonrag.agent.prompting import load_prompts
from reasonrag.data.atlas import write_world
from reasonrag.data.corpus import Passage
from reasonrag.errors import CapReached, InputError, ModelError
from reasonrag.files import only_writer
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.serving.openai_api import ChatCompletionRequest, as_json, completion
from reasonrag.studies.revaluation import Revaluation, RevaluedPair
from tests.endpoints.weak_teacher import WeakTeacher
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering
from tests.helpers.scripted_model import RecordedOffline, ScriptedModel
from tests.helpers.shared import Shared
from tests.helpers.trees import paid, trees

REPORT = Path("runs/a/calibration/report.json")
JOURNAL = Path("runs/a/calibration/journal.jsonl")
FAILURES = Path("runs/a/calibration/failures.jsonl")
SMALL: dict[str, Any] = {"dataset": "atlas", "limit": 15, "set": {"search.max_calls": 60}, "run": "runs/a"}
FEW = SMALL | {"limit": 7}
"""Questions enough for a handful of pairs."""


@pytest.fixture
def run(shared: Shared) -> Path:
    """A run of the offline teacher."""
    shared.copy("run-to-calibrate", lambda: package.generate(**SMALL))
    return Path("runs/a")


def told(report: Any) -> Any:
    """What a calibration found, apart from what was asked for now."""
    return report.model_dump(exclude={"revaluation": {"session_calls"}})


def revalued(run: Path | str, **flags: Any) -> Revaluation:
    """What the fresh continuations of a calibration found."""
    return package.calibrate(run, **flags).revaluation


# -- end to end ------------------------------------------------------------------------------------------------


def test_labels_are_held_against_fresh_continuations(run: Path, reasonrag: Reasonrag) -> None:
    """A table, a curve and a report; the second time nothing is asked, and the same is found."""
    command = ("calibrate", run, "--revalue", 10, "--k", 8)
    first = reasonrag(*command)
    assert first.status == 0, first.err
    assert "8 fresh continuations per step  by offline" in first.out
    assert "claimed confidence, share right of all" in first.out
    before, bought = json.loads(REPORT.read_text()), JOURNAL.read_bytes()
    second = json.loads(reasonrag(*command, "--json").out)
    assert before["revaluation"].pop("session_calls") == before["revaluation"]["calls"] > 0
    assert second["revaluation"].pop("session_calls") == 0
    assert before == second
    assert JOURNAL.read_bytes() == bought
    found = second["revaluation"]
    assert second["versions"]["reasonrag"]
    assert second["config_hash"] == trees()[0].config_hash
    assert (found["pairs"], found["unvalued"], found["k"]) == (10, 0, 8)
    assert found["confirmed"]["confirmed"]["of"] + found["confirmed"]["ties"] == 10
    assert sum(each["confirmed"]["of"] + each["ties"] for each in found["reliability"]) == 10
    assert (second["settings"]["revalue"], second["settings"]["seed"]) == (10, 0)


def test_the_sample_is_of_the_pairs_that_would_be_exported(run: Path) -> None:
    """Another seed draws others; more than there are is all of them."""
    exported = {
        (tree.question_id, each.chosen.id, each.rejected.id)
        for tree in trees()
        for each in candidates(tree, PairingRules())
        if each.dropped is None
    }
    drawn = {}
    for seed, size in ((0, 10), (1, 10), (1, 100_000)):
        found = revalued(run, revalue=size, k=1, seed=seed)
        drawn[seed, size] = [(each.question_id, each.chosen_id, each.rejected_id) for each in found.sample]
        assert found.exportable == len(exported)
        assert set(drawn[seed, size]) <= exported
    assert set(drawn[0, 10]) != set(drawn[1, 10])
    assert sorted(drawn[1, 100_000]) == sorted(exported)


def test_a_larger_sample_holds_the_smaller_one(run: Path) -> None:
    """In whatever order the trees stand: what was paid for is used, and only the rest is asked for."""
    first = revalued(run, revalue=5, k=2)
    lines = (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rollouts.jsonl").write_bytes(b"".join(reversed(lines)))
    same, grown = (revalued(run, revalue=size, k=2) for size in (5, 9))
    assert (same.sample, same.session_calls) == (first.sample, 0)
    assert grown.sample[:5] == first.sample
    assert grown.calls == first.calls + grown.session_calls


def test_the_rows_of_a_data_set_are_checked_as_they_stand_there(run: Path) -> None:
    """However they were labelled: exchanged sides have the opposite margins."""
    of_outcomes = {"label": "outcome", "validation": 0.2}
    made = package.pairs(run, out="data/outcomes", **of_outcomes)
    package.pairs(run, out="data/flipped", flip=1, **of_outcomes | {"validation": 0})
    rows, flipped = (
        {(each.question_id, each.chosen_id, each.rejected_id): each for each in found.sample}
        for found in (revalued(run, data=f"data/{name}", revalue=400, k=4) for name in ("outcomes", "flipped"))
    )
    assert len(rows) == made.pairs
    for (question, chosen, rejected), each in rows.items():
        other = flipped[question, rejected, chosen]
        assert (other.margin, other.fresh_margin) == pytest.approx((-each.margin, -(each.fresh_margin or 0)))
    package.pairs(package.generate(**FEW | {"run": "runs/b", "seed": 5}).run, out="data/other")
    Path("data/foreign").mkdir()
    Path("data/foreign/RAG_ProGuide.json").write_text('[{"prompt": "a", "chosen": "b", "rejected": "c"}]')
    Path("data/foreign/candidates.jsonl").touch()
    Path("data/alone").mkdir()
    Path("data/alone/RAG_ProGuide.json").write_bytes(Path("data/outcomes/RAG_ProGuide.json").read_bytes())
    for wrong, said in (
        *(("data/other", "has no row of this run"), ("data/foreign", "has no row of this run")),
        *(("data", "holds no pairs"), ("data/alone", "no pairs with candidates.jsonl")),
    ):
        with pytest.raises(InputError, match=said):
            revalued(run, data=wrong)
    assert json.loads(REPORT.with_name("rows.json").read_bytes())["settings"]["data"] == "data/flipped"
    assert not REPORT.exists()
    trees_of_run = (run / "rollouts.jsonl").read_bytes()
    for others, said in ((b"", "has no tree of"), (trees_of_run.replace(b"<query>", b"<query>so "), "is not the one")):
        (run / "rollouts.jsonl").write_bytes(others)
        with pytest.raises(InputError, match=said):
            revalued(run, data="data/outcomes")


# -- what the numbers mean -------------------------------------------------------------------------------------


class Certain(OfflineTeacher):
    """Asked at temperature 0, whatever the request says."""

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        sampling = request.sampling.model_copy(update={"temperature": 0.0})
        return await super().complete(replace(request, sampling=sampling))


@pytest.mark.parametrize("recipe", ["continuation", "economy"])
def test_labels_of_a_policy_without_chance_are_all_confirmed(recipe: str) -> None:
    """The student always goes on in the same way, so its fresh continuations are those that the labels rest on."""
    student = Certain(name="offline-student")
    package.generate(dataset="atlas", limit=40, recipe=recipe, run="runs/a", value_chat_model=student)
    found = revalued("runs/a", revalue=20, k=3, chat_model=student)
    assert (found.model, found.pairs) == ("offline-student", 20)
    assert (found.confirmed.confirmed.share, found.confirmed.ties) == (1.0, 0)
    assert found.mean_fresh_margin == pytest.approx(found.mean_margin)
    for each in found.sample:
        assert each.fresh_margin == pytest.approx(each.margin)


def test_the_outcome_of_fresh_continuations_is_told_without_the_discount(run: Path) -> None:
    """Beside the discounted value: an answer's own outcome; of others, at least its value, as every step discounts."""
    found = revalued(run, revalue=30, k=2)
    assert {each.action_type for each in found.sample} > {"answer"}
    for each in found.sample:
        nodes = trees_by_id()[each.question_id].nodes
        for node, fresh, outcome in (
            (nodes[each.chosen_id], each.chosen_fresh, each.chosen_outcome),
            (nodes[each.rejected_id], each.rejected_fresh, each.rejected_outcome),
        ):
            assert fresh is not None
            assert outcome is not None
            if node.terminal:
                assert node.outcome is not None
                assert outcome == node.outcome.value
            elif fresh:
                assert fresh < outcome <= 1
            else:
                assert outcome == 0


def test_a_difference_by_rounding_is_a_tie() -> None:
    """And one of the label's sign confirms it."""
    pairs = [RevaluedPair.model_construct(fresh_margin=each, confidence=None) for each in (1e-12, 0.2, -0.1)]
    assert [each.checked[:2] for each in pairs] == [(True, False), (False, True), (False, False)]


def trees_by_id() -> dict[str, RolloutRecord]:
    return {tree.question_id: tree for tree in trees()}


def test_continuations_with_a_repaired_step_do_not_count(run: Path) -> None:
    """As in the labels: such a reply is no plain sample. Without any that counts, a step has no fresh value."""

    def stammers(request: ChatRequest, _position: int) -> str:
        repaired = len(request.messages) > 2
        return "<answer>nothing</answer>" if repaired else "well"

    found = revalued(run, revalue=30, k=2, chat_model=ScriptedModel(stammers, name="student"))
    thought_after = [each for each in found.sample if each.action_type == "evidence"]
    assert thought_after
    assert all(each.fresh_margin is None for each in thought_after)
    assert found.unvalued >= len(thought_after)
    assert found.confirmed.confirmed.of + found.confirmed.ties == len(found.sample) - found.unvalued


def test_ends_that_no_label_counts_count_in_no_fresh_mean() -> None:
    """In a released run, an answer that was forced at the last step has no reward."""
    package.generate(**FEW | {"recipe": "released", "chat_model": WeakTeacher(), "limit": 20})

    def answers_at_last(request: ChatRequest, position: int) -> str:
        if request.messages[0].content == load_prompts().system("conclude"):
            return "<answer>1</answer>"
        reads = "<reference>" in request.messages[-1].content
        return "<evidence>None</evidence>" if reads else f"<query>{position}</query>"

    student = ScriptedModel(answers_at_last, name="student")
    found = revalued("runs/a", revalue=10, k=2, chat_model=student)
    nodes = {key: tree.nodes for key, tree in trees_by_id().items()}
    fresh = [(nodes[each.question_id][each.chosen_id].terminal, each.chosen_fresh) for each in found.sample]
    assert fresh
    assert all(ended or value is None for ended, value in fresh)


# -- fresh, and bought once ------------------------------------------------------------------------------------


def test_states_are_rebuilt_and_continued_with_draws_of_their_own(run: Path) -> None:
    """What is asked is a prompt of the tree, byte by byte; no draw is one of the search's, none is asked for twice."""
    teacher = RecordedOffline()
    found = revalued(run, revalue=40, k=4, chat_model=teacher)
    prompts = {tuple(node.prompt) for tree in trees() for node in tree.nodes if node.prompt}
    firsts = [request for request in teacher.requests if len(request.samples) == 4]
    assert len(firsts) > 10
    assert {request.messages for request in firsts} <= prompts
    assert not set(paid(JOURNAL.parent)) & set(paid(run))
    assert max(Counter(paid(JOURNAL.parent)).values()) == 1
    assert len(paid(JOURNAL.parent)) == found.calls == found.session_calls


def test_a_question_is_continued_with_the_steps_that_its_hops_gave_it() -> None:
    """A tree says how many hops its question has, where that decided its steps: deep states are no conclusions here.
    The state after a step that shares the continuations of a sibling is in no tree; all others are."""
    package.generate(dataset="atlas", split="dev", limit=20, set={"agent.steps_by_hops": True}, run="runs/a")
    records = trees()
    assert {each.hops for each in records} == {2, 3}
    assert all(max(end.steps for end in each.ends) == 2 * (each.hops or 0) + 3 for each in records)
    teacher = RecordedOffline()
    package.calibrate("runs/a", revalue=400, k=2, min_confidence=0, chat_model=teacher)
    turns = {tuple(node.prompt): (node.layer, node.action) for tree in records for node in tree.nodes if node.prompt}
    firsts = {request.messages for request in teacher.requests if len(request.samples) == 2}
    shared = [node for tree in records for node in tree.nodes if node.in_common and not node.children_ids]
    assert len(firsts - turns.keys()) <= len(shared)
    assert (6, "think") in {turns[each] for each in firsts & turns.keys()}, (
        "the seventh step concludes where there are seven"
    )


def test_a_question_is_asked_in_its_own_style(tmp_path: Path) -> None:
    """A tree does not name the style of its question; its first prompt shows it."""
    world = write_world(tmp_path)
    questions = [orjson.loads(line) for line in (world / "train.jsonl").read_bytes().splitlines()[:7]]
    lines = [orjson.dumps(each | {"metadata": {"style": "long"}}) for each in questions]
    (tmp_path / "own.jsonl").write_bytes(b"\n".join(lines))
    package.generate(questions=tmp_path / "own.jsonl", corpus=world / "corpus.jsonl", model="offline", run="runs/a")
    teacher = RecordedOffline()
    package.calibrate("runs/a", revalue=10, k=2, chat_model=teacher)
    thoughts = [request for request in teacher.requests if "Reference" not in request.messages[-1].content]
    assert thoughts
    assert all(load_prompts()["long"] in request.messages[0].content for request in thoughts)


def test_labels_of_a_judge_claim_no_confidence(reasonrag: Reasonrag) -> None:
    """Scores have no sampling error to tell: the report has null, and no bin takes them."""
    package.generate(**FEW | {"recipe": "ragym"})
    shown = reasonrag("calibrate", "runs/a", "--revalue", 4, "--k", 2)
    assert "these labels have no confidence" in shown.out, shown.err
    found = json.loads(REPORT.read_text())["revaluation"]
    assert {each["confidence"] for each in found["sample"]} == {None}
    assert all(each["mean_confidence"] is None for each in found["reliability"])


def test_a_calibration_that_was_stopped_again_and_again_pays_once(run: Path, reasonrag: Reasonrag) -> None:
    """A cap every so many calls, status 3 and the command that goes on; in the end what an uncapped one finds."""
    stopped = reasonrag("calibrate", run, "--revalue", 8, "--k", 6, "--max-calls", 20)
    assert stopped.status == CapReached.exit_status
    assert "--max-calls: " in stopped.err
    assert f"continue with: reasonrag calibrate {run} --revalue 8 --k 6 --max-calls" in stopped.err
    assert 0 < len(paid(JOURNAL.parent)) <= 20
    cap = 20
    while True:
        cap += 60
        try:
            parts = package.calibrate(run, revalue=8, k=6, max_calls=cap)
        except CapReached:
            assert len(paid(JOURNAL.parent)) <= cap
            continue
        break
    assert cap > 80
    assert max(Counter(paid(JOURNAL.parent)).values()) == 1
    JOURNAL.unlink()
    assert told(parts)["revaluation"] == told(package.calibrate(run, revalue=8, k=6))["revaluation"]


def test_who_has_all_answers_needs_no_model(endpoint: str) -> None:
    """Neither endpoint nor key: the journal answers. More continuations go on from those that are there."""
    package.generate(**FEW, model="gpt-4o", base_url=[endpoint])
    with pytest.raises(InputError, match="gpt-4o costs money: give `max_cost` DOLLARS, or `yes=True`"):
        package.calibrate("runs/a", revalue=5, k=2)
    first = package.calibrate("runs/a", revalue=5, k=2, yes=True)
    second = package.calibrate("runs/a", revalue=5, k=2, base_url=["http://127.0.0.1:9/v1"])
    assert first.revaluation is not None
    assert second.revaluation is not None
    assert second.revaluation.session_calls == 0
    assert second.revaluation.sample == first.revaluation.sample
    assert first.revaluation.cost_usd == second.revaluation.cost_usd
    assert first.revaluation.cost_usd
    with pytest.raises(InputError, match="cannot reach"):
        package.calibrate("runs/a", revalue=5, k=3, yes=True, base_url=["http://127.0.0.1:9/v1"])


def test_each_model_has_answers_and_caps_of_its_own(run: Path) -> None:
    """Another model's calibration neither uses the teacher's answers nor pays out of its cap."""
    teachers = revalued(run, revalue=5, k=2)
    students = revalued(run, revalue=5, k=2, model="offline-student", max_calls=10_000)
    assert students.model == "offline-student"
    assert students.calls == students.session_calls > 0
    lines = [orjson.loads(line) for line in JOURNAL.read_bytes().splitlines()]
    assert {line.get("model") for line in lines} == {None, "offline-student"}
    again = revalued(run, revalue=5, k=2, max_calls=teachers.calls)
    assert (again.calls, again.session_calls) == (teachers.calls, 0)


def test_a_step_that_gets_no_answer_costs_its_pairs(run: Path) -> None:
    """The others are valued; the cause is counted, and the next calibration asks again."""
    asked: Counter[str] = Counter()

    def refuses_the_third(_request: ChatRequest, _position: int) -> Completion | str:
        asked["draws"] += 1
        if asked["draws"] == 3:
            raise ModelError("no", cause="http_400")
        return "<answer>nothing</answer>"

    found = revalued(run, revalue=10, k=1, chat_model=ScriptedModel(refuses_the_third, name="s"))
    assert found.failures_by_cause == {"http_400": 1}
    [given_up] = [json.loads(line) for line in FAILURES.read_text().splitlines()]
    assert (given_up["kind"], given_up["cause"], given_up["message"]) == ("step", "http_400", "no")
    assert given_up["node_id"] in {node.id for node in trees_by_id()[given_up["question_id"]].nodes}
    assert 0 < found.unvalued < 10
    mended = revalued(run, revalue=10, k=1, chat_model=ScriptedModel(refuses_the_third, name="s"))
    assert (mended.unvalued, mended.failures_by_cause) == (0, {})


# -- what the run was made with --------------------------------------------------------------------------------


@pytest.fixture
def own_run(shared: Shared) -> Path:
    """A run over a corpus and prompts of one's own."""
    shared.copy("run-of-own-files", make_own_run)
    return Path("runs/a")


def make_own_run(corpus: str = "corpus.jsonl", prompts: str = "prompts") -> None:
    world = write_world(Path("world"))
    (world / "corpus.jsonl").rename(corpus)
    Path(prompts).mkdir(exist_ok=True)
    Path(prompts, "think.txt").write_text(f"{load_prompts()['think'].rstrip()}\nBe brief.\n")
    files = {"questions": world / "train.jsonl", "corpus": corpus, "prompts": prompts}
    package.generate(**files, limit=6, model="offline", run="runs/a")


def test_no_flag_is_needed_where_files_are_as_they_were_or_generate_says_where_they_are(own_run: Path) -> None:
    """The run says what it was made with; the corpus and the prompts are told by their content."""
    first = revalued(own_run, revalue=3, k=2)
    Path("moved").mkdir()
    for name in ("corpus.jsonl", "prompts"):
        Path(name).rename(Path("moved") / name)
        with pytest.raises(InputError, match=f"{name}, no longer exists: put it back, or say where it is now by runn"):
            package.calibrate(own_run, revalue=3, k=2)
    make_own_run(corpus="moved/corpus.jsonl", prompts="moved/prompts")
    moved = revalued(own_run, revalue=3, k=2)
    assert moved.pairs > 0
    assert (moved.sample, moved.session_calls) == (first.sample, 0)


def test_another_corpus_and_other_prompts_are_refused(own_run: Path) -> None:
    """Passages would be others, and fresh continuations those of another policy; the error names both indexes."""
    whole = Path("corpus.jsonl").read_bytes()
    Path("corpus.jsonl").write_bytes(whole.partition(b"\n")[2])
    with pytest.raises(InputError, match=r"was made with the index bm25:\w+.*, this one is bm25:.*put it back"):
        package.calibrate(own_run, revalue=3, k=2)
    Path("corpus.jsonl").write_bytes(whole)
    Path("prompts/think.txt").write_text(load_prompts()["think"])
    with pytest.raises(InputError, match="other prompts: put it back, or say where it is now"):
        package.calibrate(own_run, revalue=3, k=2)


class FindsCats:
    """A retriever that claims to be the run's, and finds cats."""

    def __init__(self, identity: str) -> None:
        self.identity = identity

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        cats = Passage(id="cats", title="Cats", text=f"Cats know nothing of {query}.", score=1.0)
        return [cats][:top_k]


def test_passages_that_are_not_those_the_run_read_are_refused(own_run: Path) -> None:
    """Before anything is asked; the error says where, and names the index."""
    identity = json.loads((own_run / "config.json").read_text())["decides_answers"]["retriever"]
    with pytest.raises(
        InputError, match=r"question \S+, node \d+: the index bm25:.* finds \['cats'\], the run had read"
    ):
        package.calibrate(own_run, revalue=100, k=2, retriever=FindsCats(identity))
    assert JOURNAL.read_bytes() == b""


def test_what_is_no_run_or_calibrated_by_another_is_refused(run: Path, reasonrag: Reasonrag) -> None:
    """Two would write over each other's answers."""
    done = reasonrag("calibrate", "runs/none")
    assert (done.status, "there is no runs/none/rollouts.jsonl" in done.err) == (2, True)
    with only_writer(run / "calibration"), pytest.raises(InputError, match="being written by another reasonrag"):
        package.calibrate(run, revalue=3, k=2)


# -- where it asks, with which key, at what price --------------------------------------------------------------


def test_the_teacher_is_asked_where_the_run_had_asked_it(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address from OPENAI_BASE_URL is not among the flags, and the environment may be another one now."""
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint)
    package.generate(**FEW, model="gpt-4o")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    found = revalued("runs/a", revalue=8, k=1, price="gpt-4o=0,0")
    assert found.session_calls > 0
    assert found.cost_usd == 0.0, "a price of nothing is a price, over the table's too"
    package.generate(**FEW | {"run": "runs/offline"})
    assert revalued("runs/offline", revalue=2, k=1), "the offline teacher answers in this process"


def test_an_unknown_model_at_an_address_of_its_own_is_not_free(run: Path, endpoint: str) -> None:
    """A cap in dollars needs its price; 0 is one. Without a cap the cost is not known."""
    other: dict[str, Any] = {"revalue": 2, "k": 1, "model": "qwen", "base_url": [endpoint]}
    with pytest.raises(InputError, match=r"`max_cost` needs the price of qwen.*give `price` qwen=IN,OUT"):
        package.calibrate(run, **other, max_cost=1.0)
    unpriced = package.calibrate(run, **other).revaluation
    free = package.calibrate(run, **other, max_cost=1.0, price="qwen=0,0").revaluation
    assert (unpriced.cost_usd, free.cost_usd) == (None, 0.0)


def test_messages_name_flags_and_keys_of_this_command(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model is named by --model, and sent OPENAI_API_KEY."""
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "REASONRAG_VALUE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InputError, match=r"cannot reach .*Check `base_url`"):
        package.calibrate(run, revalue=2, k=1, model="qwen", base_url=["http://127.0.0.1:9/v1"])
    with pytest.raises(InputError, match=r"set OPENAI_API_KEY, or give `base_url` .* `model` offline"):
        package.calibrate(run, revalue=2, k=1, model="qwen", base_url=["https://api.openai.com/v1"])


SPOILT: dict[str, tuple[str, str, object, str]] = {
    "no hash": ("", "config_hash", None, r"lacks config_hash, .* Give a run directory of reasonrag generate"),
    "no teacher": ("decides_answers", "model", None, r"lacks decides_answers\.model, "),
    "a number for a name": ("decides_answers", "model", 7, r"is damaged: decides_answers\.model\S* "),
    "an earlier rule": (
        "decides_answers",
        "outcome_rule",
        None,
        r"valued by another rule of evident_f1 .* generate it",
    ),
    "a published run": ("operational", "settings", None, r"lacks operational\.settings, .* published runs have no"),
    "a bad setting": ("operational", "settings", {"top_k": "many"}, r"operational\.settings: top_k.*Restore the file"),
}


@pytest.mark.parametrize(("part", "key", "value", "message"), SPOILT.values(), ids=SPOILT)
def test_a_configuration_that_lacks_something_or_is_damaged_is_refused(
    part: str, key: str, value: object, message: str, run: Path
) -> None:
    """By name: a key that cannot be read is not taken for one that is missing, whose default would value other
    things."""
    config = json.loads((run / "config.json").read_text())
    place = config[part] if part else config
    if value is None:
        del place[key]
    else:
        place[key] = value
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        package.calibrate(run, revalue=2, k=1, chat_model=RecordedOffline())


async def refused(request: web.Request) -> web.Response:
    """The check is answered, everything else is refused, with the key repeated."""
    wanted = ChatCompletionRequest.read(await request.read())
    if wanted.messages[-1].content == "Say yes.":
        return as_json(completion("qwen", [("yes", "stop")], prompt_tokens=3, completion_tokens=1))
    return web.json_response({"error": {"message": f"not with {request.headers['Authorization']}"}}, status=404)


def test_steps_that_were_given_up_are_told(run: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 1, and where to read why, without the key."""
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2hunter2")
    with Answering(refused).open() as served:
        flags = ("--revalue", 3, "--k", 1, "--model", "qwen", "--base-url", served.base_url)
        shown = reasonrag("calibrate", run, *flags)
    assert shown.status == 1, shown.err
    assert f"failure causes: {FAILURES}; the same command retries the failed steps" in shown.out
    lines = [json.loads(line) for line in FAILURES.read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"call", "step"}
    assert {line["cause"] for line in lines} == {"http_404"}
    assert "hunter2" not in FAILURES.read_text()
    assert "[secret]" in FAILURES.read_text()
