"""Configurations tried on the user's own questions: what the trials share, what they cost, and what is suggested."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from preference import PairingRules, RolloutRecord, candidates, read_rollouts
from reasonrag.agent.recipe_file import values_of
from reasonrag.errors import InputError, ModelError
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import only_writer
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import Price
from reasonrag.studies.tune import Tuning, plan_trials
from reasonrag.terminal import show
from tests.helpers.command_line import Done, Reasonrag
from tests.helpers.processes import simulated_endpoint
from tests.helpers.shared import Shared

BUDGET = ("--set", "search.max_calls=40")
SIBLINGS: list[object] = ["tune", "--pilot", 4, *BUDGET, "--vary", "search.siblings=3,4,6", "--run", "runs/t"]
VARY = ("--vary", "search.siblings=3,6")
QUICK: dict[str, Any] = {"pilot": 5, "run": "runs/t", "set": {"search.max_calls": 24}}
"""From Python, with budgets that end soon."""


def journal_calls(path: str | Path) -> int:
    return sum(len(json.loads(line)["keys"]) for line in Path(path).read_text().splitlines())


def records(trial: str, run: str | Path = "runs/t") -> list[RolloutRecord]:
    return list(read_rollouts(Path(run) / "trials" / trial / "rollouts.jsonl"))


def tuning_of(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    return found


def files(run: Path) -> dict[str, bytes]:
    """What a tune leaves, but for the journal, whose order is that of the answers, and for what a session says."""
    named = [run / "tuning.json", *run.glob("trials/*/rollouts.jsonl")]
    return {str(path.relative_to(run)): path.read_bytes() for path in named}


# -- one journal ---------------------------------------------------------------------------------------------------


def test_the_same_command_again_asks_nothing(reasonrag: Reasonrag) -> None:
    """Every trial is done, no answer is added, and no byte changes."""
    everything = ("tune", "--pilot", 3, *BUDGET, *VARY, "--run", "runs/t")
    first = reasonrag(*everything)
    assert first.status == 0, first.err
    journal, written = Path("runs/t/journal.jsonl").read_bytes(), files(Path("runs/t"))
    again = reasonrag(*everything)
    assert again.status == 0
    assert again.err.count("all 3 questions are done; nothing left to ask") == len(
        list(Path("runs/t/trials").iterdir())
    )
    assert again.out == first.out
    assert Path("runs/t/journal.jsonl").read_bytes() == journal
    assert files(Path("runs/t")) == written


class DrawByDraw(OfflineTeacher):
    """The offline teacher, whose replies do not depend on what else their request asks for."""

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        singly = [request.draws(each, each + 1) for each in range(len(request.samples))]
        found = [completion for each in singly for completion in await super(DrawByDraw, self).complete(each)]
        first = found[0].model_copy(update={"completion_tokens": sum(each.completion_tokens for each in found)})
        riding = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0}
        return [first, *(each.model_copy(update=riding) for each in found[1:])]


def test_a_trial_is_the_run_that_it_would_be_by_itself() -> None:
    """The same trees for the same price, whoever asked first; completion tokens up to the rounding of parts. Together
    they ask for a quarter less at least."""
    tuning = package.tune(chat_model=DrawByDraw(), **QUICK, vary=["search.siblings=3,4,6", "agent.max_steps=5,7"])
    assert tuning.calls_delivered == journal_calls("runs/t/journal.jsonl")
    apart = sum(tree.usage.calls for each in tuning.trials for tree in records(each.name))
    assert tuning.calls_delivered < 0.75 * apart
    for trial in tuning.trials:
        alone = Path("runs") / trial.name
        package.generate(chat_model=DrawByDraw(), run=alone, limit=QUICK["pilot"], set=QUICK["set"] | trial.changed)
        for here, there in zip(records(trial.name), read_rollouts(alone / "rollouts.jsonl"), strict=True):
            assert (here.nodes, here.config_hash) == (there.nodes, there.config_hash)
            for name in ("calls", "requests", "prompt_tokens", "repairs"):
                assert getattr(here.usage, name) == getattr(there.usage, name)
            assert here.usage.completion_tokens == pytest.approx(there.usage.completion_tokens, rel=0.05)


# -- stops and failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_a_cap_stops_the_trials_and_a_larger_one_ends_them_like_no_cap(
    share: float, reasonrag: Reasonrag, shared: Shared
) -> None:
    """In the first trial or a later one: status 3, a report of what there is, and the command that goes on."""
    uncapped = shared.folder("tuned-siblings", lambda: reasonrag(*SIBLINGS)) / "runs/t"
    whole, calls = files(uncapped), journal_calls(uncapped / "journal.jsonl")
    cap = int(share * calls)
    stopped = reasonrag(*SIBLINGS, "--max-calls", cap)
    assert stopped.status == 3
    assert f"of {cap} calls are used" in stopped.out
    if share == 0.1:  # the base is not done, so there is nothing to compare with
        assert "no suggestion" in stopped.out
        assert "reasonrag generate" not in stopped.out
    assert journal_calls("runs/t/journal.jsonl") <= cap
    partial = json.loads(Path("runs/t/tuning.json").read_text())
    assert (partial["stopped"]["cause"], partial["planned"]) == ("cap", 3)
    assert [each["complete"] for each in partial["trials"]] == [*[True] * (len(partial["trials"]) - 1), False]
    command = shlex.split(stopped.err.partition("continue with: ")[2])
    assert command[:-1] == ["reasonrag", *map(str, SIBLINGS), "--max-calls"]
    assert reasonrag(*SIBLINGS, "--max-calls", calls).status == 0
    assert files(Path("runs/t")) == whole
    assert journal_calls("runs/t/journal.jsonl") == calls


class Fails(OfflineTeacher):
    """The offline teacher, which has no answer to the first question at one temperature."""

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        if request.question_id == self.never and request.sampling.temperature == pytest.approx(0.7):
            raise ModelError("no answer to this one", cause="http_500")
        return await super().complete(request)

    never = ""


def test_a_temperature_that_cannot_be_set_is_not_tried(reasonrag: Reasonrag) -> None:
    """Its trials would differ from the base by noise alone, and cost as much."""
    with simulated_endpoint("--profile", "gpt-5") as base_url:
        vary = ("--vary", "agent.temperature=.7,1.3", "--vary", "search.siblings=3,6")
        flags = ("--pilot", 2, *vary, "--run", "runs/t", "--base-url", base_url)
        done = reasonrag("tune", "--model", "o", *flags, "--json")
    tuning = tuning_of(done)
    assert [each["name"] for each in tuning["trials"]] == ["base", "siblings-3", "siblings-6"]
    assert "temperature-0.7 is not tried: the teacher does not accept temperature" in tuning["warnings"]


def test_a_failed_question_is_counted_in_its_trial(capsys: pytest.CaptureFixture[str]) -> None:
    """It costs what it has cost and has no pairs; the other trials do not know of it."""
    teacher = Fails()
    package.tune(chat_model=teacher, vary=["search.siblings=3"], **QUICK)
    teacher.never = records("base")[0].question_id
    tuning = package.tune(chat_model=teacher, vary=["agent.temperature=0.7,1.3"], **QUICK)
    found = {each.name: each for each in tuning.trials}
    assert (found["temperature-0.7"].failed, found["base"].failed, found["temperature-1.3"].failed) == (1, 0, 0)
    assert found["temperature-0.7"].failures_by_cause == {"http_500": 1}
    assert (found["temperature-0.7"].questions, found["temperature-0.7"].complete) == (5, True)
    show(Tuning.shown(tuning))
    assert "temperature-0.7: 1 question failed: http 500 1" in capsys.readouterr().out


# -- what is reported ----------------------------------------------------------------------------------------------


def test_a_report_is_what_the_records_of_the_trial_say() -> None:
    """Counted again here, from rollouts and the rules of pairing."""
    tuning = package.tune(
        **QUICK | {"pilot": 8}, vary=["search.siblings=3,6"], price="offline=1,4", yes=True, min_confidence=0.6
    )
    price = Price(1.0, 4.0, cached_in=1.0)
    assert (tuning.unit, tuning.questions) == ("dollars", 8)
    rules = PairingRules(min_confidence=0.6)
    for found in tuning.trials:
        trees = records(found.name)
        kept = [each for tree in trees for each in candidates(tree, rules) if not each.dropped]
        right = sum(each.pair.confidence or 0 for each in kept)
        cost = sum(price.cost(tree.usage.prompt_tokens, tree.usage.completion_tokens) for tree in trees)
        assert found.calls == pytest.approx(sum(tree.usage.calls for tree in trees) / 8)
        assert found.pairs == pytest.approx(len(kept) / 8)
        assert found.right_pairs == pytest.approx(right / 8)
        assert found.questions_with_a_pair == len({each.state.question_id for each in kept}) / 8
        assert found.confidence == (pytest.approx(right / len(kept)) if kept else None)
        assert found.cost_per_right_pair == (pytest.approx(cost / right, rel=1e-4) if kept else None)
        ends = found.intervals["questions_with_a_pair"]
        assert (ends.low or 0) <= found.questions_with_a_pair <= (ends.high or 0)
    assert any(found.pairs for found in tuning.trials)


def test_a_smaller_pilot_is_told_of_its_own_questions_only() -> None:
    """Also where a larger one has left more trees. A teacher without a price, like one that is free, is measured in
    replies."""
    package.tune(**QUICK | {"pilot": 6}, vary=["search.siblings=3"])
    found = package.tune(**QUICK | {"pilot": 3}, vary=["search.siblings=3"])
    assert {each.questions for each in found.trials} == {3}
    base = found.trials[0]
    assert found.unit == "calls"
    assert base.cost_per_right_pair == (pytest.approx(base.calls / base.right_pairs) if base.pairs else None)


# -- the configuration ---------------------------------------------------------------------------------------------


def test_the_suggested_configuration_is_one_that_generate_takes(reasonrag: Reasonrag) -> None:
    """As the printed command: what decides the answers is what decided the trial's."""
    flags = ["--seed", 2, "--max-calls", 100_000, "--price", "offline=1,2", "--yes", "--set", "search.max_calls=48"]
    tuned = reasonrag("tune", "--pilot", 14, "--vary", "search.max_calls=64,128,192", *flags, "--run", "runs/t")
    assert tuned.status == 0
    suggested = json.loads(Path("runs/t/tuning.json").read_text())["suggested"]
    [command] = [line for line in tuned.out.splitlines() if line.startswith("reasonrag generate")]
    assert reasonrag(*shlex.split(command)[1:], "--limit", 2).status == 0
    trial, made = (
        json.loads(Path(run, "config.json").read_text()) for run in (f"runs/t/trials/{suggested}", "runs/main")
    )
    assert trial["decides_answers"] == made["decides_answers"]
    assert trial["decides_answers"]["seed"] == 2
    assert made["operational"]["settings"]["max_calls"] is None


def test_the_suggested_configuration_holds_no_secret() -> None:
    """A password in an address stays in the command that was typed. Fields for the server are in it as they were."""
    teacher, address = OfflineTeacher(), "http://me:hidden@127.0.0.1:8000/v1"
    cheaper = {"pilot": 14, "vary": ["search.max_calls=64,128"], "set": {"search.max_calls": 48}}
    asked = {"base_url": [address], "price": "offline=1,2", "yes": True}
    Path("reasonrag.toml").write_text("[generate]\nextra_body = {min_p = 0}\n")
    tuning = package.tune(chat_model=teacher, run="runs/t", **asked, **cheaper)
    assert "--base-url http://127.0.0.1:8000/v1" in tuning.command
    assert """--extra-body '{"min_p":0}'""" in tuning.command
    assert not any(b"hidden" in path.read_bytes() for path in Path("runs/t").rglob("*") if path.is_file())


def test_settings_of_generate_make_the_base_and_those_of_tune_the_trials(reasonrag: Reasonrag) -> None:
    """Each from its table; where generate's run would go is not where the trials go."""
    Path("reasonrag.toml").write_text(
        '[generate]\nrun = "runs/main"\nlimit = 1000\nset = {search.siblings = 3, search.max_calls = 24}\n'
        '[tune]\nrun = "runs/t"\npilot = 3\nvary = ["search.siblings=3,4,6"]\n'
    )
    tuning = tuning_of(reasonrag("tune", "--json"))
    assert (tuning["run"], tuning["questions"]) == ("runs/t", 3)
    assert [each["changed"] for each in tuning["trials"]] == [{}, {"search.siblings": 4}, {"search.siblings": 6}]
    assert all(each["calls"] <= 30 for each in tuning["trials"])
    assert not Path("runs/main").exists()


# -- which trials --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "vary", "names"),
    [
        ({}, ["search.siblings=3,4,6,3", "search.siblings=6"], ["base", "siblings-3", "siblings-6"]),
        ({}, ["agent.max_steps=5,7", "search.continuations=2"], ["base", "max-steps-5", "continuations-2"]),
        ({"recipe": "continuation"}, ["search.exploration=0.5,1.414"], ["base", "exploration-0.5"]),
        ({"temperature": 0.0}, ["agent.temperature=.7,1"], ["base", "temperature-0.7", "temperature-1"]),
        ({"outcome": "em"}, ["outcome=f1,em"], ["base", "outcome-f1"]),
        ({}, ["search.max_calls=64,null"], ["base", "max-calls-64", "max-calls-None"]),
    ],
)
def test_one_value_at_a_time_is_varied_around_the_base(
    settings: dict[str, Any], vary: list[str], names: list[str]
) -> None:
    """A value that the base or a trial has already is no trial of its own; one that a flag sets for the base is varied,
    too."""
    base = GenerateSettings(run=Path("runs/t"), **settings)
    trials = plan_trials(base, vary)
    assert [trial.name for trial in trials] == names
    for trial in trials[1:]:
        [(key, value)] = trial.changed.items()
        assert values_of(trial.settings.resolved_recipe) == values_of(base.resolved_recipe) | {key: value}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vary", "search.sibling=3"], r"a recipe has no 'search.sibling'; did you mean 'search.siblings'\?"),
        ([], "give values of the recipe to try: --vary KEY=VALUE,VALUE"),
        (["--vary", "search.siblings"], "it takes KEY=VALUE,VALUE, as in --vary search.siblings=3,4,6"),
        (["--vary", "search.siblings=3,,4"], "it takes KEY=VALUE,VALUE"),
        (["--vary", "search.siblings=0"], "--set search.siblings: must be at least 1"),
        (["--vary", "search.exploration=1"], "search.exploration is c of uct, puct and unit_puct"),
        (["--vary", "search.continuations=2", "--recipe", "released"], "search.continuations is 1 unless"),
        ([*VARY, "--model", "my-own/model", "--max-cost", 1], "--max-cost needs the price"),
        ([*VARY, "--model", "gpt-4o"], "a tune is many runs: give --max-cost DOLLARS .*, or --yes"),
        (["--top-k", 3], "No such option: --top-k .*may stand in its table in reasonrag.toml"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(flags: list[object], message: str, reasonrag: Reasonrag) -> None:
    """With what to do instead."""
    done = reasonrag("tune", "--run", "runs/t", *flags)
    assert done.status == 2
    assert re.search(message, done.err), done.err
    assert not any(path.stat().st_size for path in Path().glob("runs/t/journal.jsonl"))


def test_a_run_of_generate_is_not_taken_for_trials_nor_trials_for_a_run(reasonrag: Reasonrag) -> None:
    """Their journals would be mixed, and the files of one lie between those of the other; said before anything is
    written."""
    Path("runs/t/trials").mkdir(parents=True)
    done = reasonrag("generate", "--limit", 1, "--run", "runs/t")
    assert (done.status, "runs/t holds the trials of a tune; choose another --run" in done.err) == (2, True)
    assert [each.name for each in Path("runs/t").iterdir()] == ["trials"]
    assert reasonrag("generate", "--limit", 1, "--run", "runs/main").status == 0
    done = reasonrag("tune", "--pilot", 2, *VARY, "--run", "runs/main")
    assert (done.status, "runs/main is a run directory of generate" in done.err) == (2, True)


def test_two_at_once_do_not_write_to_one_journal(reasonrag: Reasonrag) -> None:
    """Also where they are at different trials."""
    Path("runs/t").mkdir(parents=True)
    with only_writer(Path("runs/t")):
        done = reasonrag(*SIBLINGS)
    assert (done.status, "runs/t is being written by another reasonrag" in done.err) == (2, True)


def test_tune_has_no_ranks_whatever_those_of_generate_are() -> None:
    """What reasonrag.toml says of them is for generate."""
    asked: dict[str, Any] = {"dataset": "atlas", "model": "offline", "pilot": 3, "vary": ["search.siblings=3"]}
    one = package.tune(**asked, run="runs/one")
    Path("reasonrag.toml").write_text('[generate]\nshard = "0/2"\non = "ray"\n')
    assert package.tune(**asked, run="runs/two").trials == one.trials


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"shard": "0/2"}, "tune has no shard"),
        ({"limit": 5}, "`pilot` says how many"),
        ({"value_model": "offline"}, "tune has no value_model"),
    ],
)
def test_settings_of_generate_that_tune_has_not_are_refused(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        package.tune(**QUICK, **flags)
    assert not Path("runs/t").exists()


def test_a_value_model_is_refused_wherever_it_is_set(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """tune has none of its flags; what the environment or the file says of it is no part of a configuration."""
    assert "--value-" not in reasonrag("tune", "--help").out
    address = "http://bob:hidden@127.0.0.1:9/v1"
    refused = reasonrag(*SIBLINGS, "--value-base-url", address)
    assert (refused.status, "may stand in its table in reasonrag.toml" in refused.err) == (2, True)
    monkeypatch.setenv("REASONRAG_VALUE_MODEL", "student")
    Path("reasonrag.toml").write_text(f'[generate]\nvalue_base_url = ["{address}"]\n')
    done = reasonrag(*SIBLINGS)
    assert (done.status, "tune has no value_model, value_base_url" in done.err) == (2, True)
    assert not Path("runs/t").exists()


@pytest.mark.parametrize("replay", [True, "runs/elsewhere/journal.jsonl"])
def test_a_replay_without_a_journal_leaves_nothing_behind(*, replay: bool | str) -> None:
    """There is nothing to play, and a config.json would look like a run; the remedy is named."""
    with pytest.raises(
        InputError, match=r"there is no runs/.*journal.jsonl to replay; give the `run` that was explored"
    ):
        package.generate(limit=1, run="runs/new", replay=replay)
    assert not Path("runs/new").exists()


def test_the_warnings_of_the_base_are_shown_and_written_once(reasonrag: Reasonrag) -> None:
    """Of evaluation questions, say: a warning of a trial would otherwise be in a summary that nobody reads."""
    small = ("--pilot", 2, "--set=search.max_calls=24", "--vary", "search.siblings=3,6")
    done = reasonrag("tune", "--split", "test", *small, "--run", "runs/t")
    warnings = json.loads(Path("runs/t/tuning.json").read_text())["warnings"]
    assert warnings == json.loads(Path("runs/t/trials/base/summary.json").read_text())["warnings"]
    assert any(each.startswith("the questions are from the test split: keep") for each in warnings)
    for each in warnings:
        assert done.err.count(f"warning: {each}") == 1


def test_labels_of_a_judge_are_not_suggested_which_is_said_before(reasonrag: Reasonrag) -> None:
    common = ["--pilot", 2, "--set", "search.max_calls=24", "--vary", "agent.max_steps=5", "--run", "runs/t"]
    assert "and none is suggested" in reasonrag("tune", *common, "--recipe", "ragym").err
