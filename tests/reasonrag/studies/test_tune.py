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
from reasonrag.errors import InputError, ModelError
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import only_writer
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import find_price
from reasonrag.studies.display import show_tuning
from reasonrag.studies.tune import VARIED, TrialReport, Tuning, plan_trials
from tests.helpers.command_line import Done, Reasonrag
from tests.helpers.processes import simulated_endpoint
from tests.helpers.shared import Shared

pytestmark = pytest.mark.slow

BUDGET = ("--max-calls-per-question", 40)
SIBLINGS: list[object] = ["tune", "--pilot", 4, *BUDGET, "--vary", "siblings", "--run", "runs/t"]
QUICK: dict[str, Any] = {"pilot": 5, "run": "runs/t", "max_calls_per_question": 24}
"""From Python, with budgets that end soon."""


def journal_calls(path: str | Path) -> int:
    return sum(len(json.loads(line)["keys"]) for line in Path(path).read_text().splitlines())


def records(trial: str, run: str | Path = "runs/t") -> list[RolloutRecord]:
    return list(read_rollouts(Path(run) / "trials" / trial / "rollouts.jsonl"))


def tuning_of(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    return found


def by_name(tuning: Tuning) -> dict[str, TrialReport]:
    return {each.name: each for each in tuning.trials}


def files(run: Path) -> dict[str, bytes]:
    """What a tune leaves, but for the journal, whose order is that of the answers, and for what a session says."""
    named = [run / "tuning.json", *run.glob("trials/*/rollouts.jsonl")]
    return {str(path.relative_to(run)): path.read_bytes() for path in named}


# -- one journal ---------------------------------------------------------------------------------------------------


def test_the_same_command_again_asks_nothing(reasonrag: Reasonrag) -> None:
    """Every trial is done, no answer is added, and no byte changes."""
    everything = ("tune", "--pilot", 3, *BUDGET, "--run", "runs/t")
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
    tuning = package.tune(chat_model=DrawByDraw(), **QUICK, vary=["siblings", "max-steps"])
    assert tuning.calls_delivered == journal_calls("runs/t/journal.jsonl")
    assert tuning.calls_delivered < 0.75 * tuning.calls_apart
    assert tuning.calls_apart == sum(tree.usage.calls for each in tuning.trials for tree in records(each.name))
    for trial in tuning.trials:
        alone = Path("runs") / trial.name
        flags = {"limit": QUICK["pilot"], "max_calls_per_question": QUICK["max_calls_per_question"]}
        package.generate(chat_model=DrawByDraw(), run=alone, **flags, **trial.changed)
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
        flags = ("--pilot", 2, "--vary", "temperature", "--vary", "siblings", "--run", "runs/t", "--base-url", base_url)
        done = reasonrag("tune", "--model", "o", *flags, "--json")
    tuning = tuning_of(done)
    assert [each["name"] for each in tuning["trials"]] == ["base", "siblings-3", "siblings-6"]
    assert "temperature-0.7 is not tried: o does not accept temperature" in tuning["warnings"]


def test_a_failed_question_is_counted_in_its_trial(capsys: pytest.CaptureFixture[str]) -> None:
    """It costs what it has cost and has no pairs; the other trials do not know of it."""
    teacher = Fails()
    package.tune(chat_model=teacher, vary=["siblings"], **QUICK)
    teacher.never = records("base")[0].question_id
    tuning = package.tune(chat_model=teacher, vary=["temperature"], **QUICK)
    found = by_name(tuning)
    assert (found["temperature-0.7"].failed, found["base"].failed, found["temperature-1.3"].failed) == (1, 0, 0)
    assert found["temperature-0.7"].failures_by_cause == {"http_500": 1}
    assert (found["temperature-0.7"].questions, found["temperature-0.7"].complete) == (5, True)
    show_tuning(tuning)
    assert "temperature-0.7: 1 question failed: http 500 1" in capsys.readouterr().out


# -- what is reported ----------------------------------------------------------------------------------------------


def test_a_report_is_what_the_records_of_the_trial_say() -> None:
    """Counted again here, from rollouts and the rules of pairing."""
    tuning = package.tune(**QUICK | {"pilot": 8}, vary=["siblings"], price_in=1.0, price_out=4.0, min_confidence=0.6)
    price = find_price("offline", tokens_in=1.0, tokens_out=4.0)
    assert price is not None
    assert (tuning.unit, tuning.questions) == ("dollars", 8)
    rules = PairingRules(min_confidence=0.6)
    for found in tuning.trials:
        trees = records(found.name)
        kept = [each for tree in trees for each in candidates(tree, rules) if not each.dropped]
        right = sum(each.confidence or 0 for each in kept)
        cost = sum(price.cost(tree.usage.prompt_tokens, tree.usage.completion_tokens) for tree in trees)
        assert found.calls == pytest.approx(sum(tree.usage.calls for tree in trees) / 8)
        assert found.cost_usd == pytest.approx(cost / 8, rel=1e-4)
        assert found.pairs == pytest.approx(len(kept) / 8)
        assert found.right_pairs == pytest.approx(right / 8)
        assert found.questions_with_a_pair == len({each.state.question_id for each in kept}) / 8
        assert found.confidence == (pytest.approx(right / len(kept)) if kept else None)
        assert found.cost_per_right_pair == (pytest.approx(cost / right, rel=1e-4) if kept else None)
        assert 0 < (found.distinct_steps or 0) <= 1
        ends = found.intervals["questions_with_a_pair"]
        assert (ends.low or 0) <= found.questions_with_a_pair <= (ends.high or 0)
    assert any(found.pairs for found in tuning.trials)


def test_a_smaller_pilot_is_told_of_its_own_questions_only() -> None:
    """Also where a larger one has left more trees. A teacher without a price, like one that is free, is measured in
    replies."""
    package.tune(**QUICK | {"pilot": 6}, vary=["siblings"])
    found = package.tune(**QUICK | {"pilot": 3}, vary=["siblings"])
    assert {each.questions for each in found.trials} == {3}
    assert found.calls_apart == sum(tree.usage.calls for each in found.trials for tree in records(each.name)[:3])
    base = found.trials[0]
    assert found.unit == "calls"
    assert base.cost_per_right_pair == (pytest.approx(base.calls / base.right_pairs) if base.pairs else None)


# -- the configuration ---------------------------------------------------------------------------------------------


def test_the_suggested_configuration_is_one_that_generate_takes(reasonrag: Reasonrag) -> None:
    """As the printed command: what decides the answers is what decided the trial's."""
    flags = ["--top-k", 2, "--max-calls", 100_000, "--price-in", 1, "--price-out", 2, "--max-calls-per-question", 48]
    tuned = reasonrag("tune", "--pilot", 14, "--vary", "max-calls-per-question", *flags, "--run", "runs/t")
    assert tuned.status == 0
    suggested = json.loads(Path("runs/t/tuning.json").read_text())["suggested"]
    [command] = [line for line in tuned.out.splitlines() if line.startswith("reasonrag generate")]
    assert reasonrag(*shlex.split(command)[1:], "--limit", 2).status == 0
    trial, made = (
        json.loads(Path(run, "config.json").read_text()) for run in (f"runs/t/trials/{suggested}", "runs/main")
    )
    assert trial["decides_answers"] == made["decides_answers"]
    assert trial["decides_answers"]["top_k"] == 2
    assert made["operational"]["caps"] == {"cost": None, "calls": None, "tokens": None}


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"outcome": "judge", "judge_gold": True}, "--judge-gold"),
        ({"recipe": "released", "judge_gold": False}, "--no-judge-gold"),
    ],
)
def test_a_switch_in_the_printed_command_has_no_value(flags: dict[str, Any], word: str, reasonrag: Reasonrag) -> None:
    """generate takes the command, and its answers are decided by the same recipe as the base's."""
    tuning = package.tune(**QUICK | {"pilot": 2}, vary=["max_steps"], **flags)
    command = shlex.split(tuning.model_copy(update={"config": flags | {"max_calls_per_question": 24}}).command)
    assert command[:2] == ["reasonrag", "generate"]
    assert word in command
    done = reasonrag(*command[1:], "--limit", 1)
    assert done.status == 0, done.err
    asked, base = (
        json.loads(Path(run, "config.json").read_text())["decides_answers"]
        for run in ("runs/main", "runs/t/trials/base")
    )
    assert asked["recipe"] == base["recipe"]


def test_the_suggested_configuration_holds_no_secret() -> None:
    """A password in an address stays in the command that was typed. Fields for the server are in it as they were."""
    teacher, address = OfflineTeacher(), "http://me:hidden@127.0.0.1:8000/v1"
    cheaper = {"pilot": 14, "vary": ["max_calls_per_question"], "max_calls_per_question": 48, "top_k": 2}
    asked = {"base_url": [address], "price_in": 1, "price_out": 2, "extra_body": {"min_p": 0}}
    tuning = package.tune(chat_model=teacher, run="runs/t", **asked, **cheaper)
    assert "--base-url http://127.0.0.1:8000/v1" in tuning.command
    assert """--extra-body '{"min_p":0}'""" in tuning.command
    assert not any(b"hidden" in path.read_bytes() for path in Path("runs/t").rglob("*") if path.is_file())


def test_settings_of_generate_make_the_base_and_those_of_tune_the_trials(reasonrag: Reasonrag) -> None:
    """Each from its table; where generate's run would go is not where the trials go."""
    Path("reasonrag.toml").write_text(
        '[generate]\nrun = "runs/main"\nlimit = 1000\nsiblings = 3\nmax_calls_per_question = 24\n'
        '[tune]\nrun = "runs/t"\npilot = 3\nvary = ["siblings"]\n'
    )
    tuning = tuning_of(reasonrag("tune", "--json"))
    assert (tuning["run"], tuning["questions"]) == ("runs/t", 3)
    assert [each["changed"] for each in tuning["trials"]] == [{}, {"siblings": 4}, {"siblings": 6}]
    assert all(each["calls"] <= 30 for each in tuning["trials"])
    assert not Path("runs/main").exists()


# -- which trials --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "vary", "names"),
    [
        ({}, ["siblings"], ["base", "siblings-3", "siblings-6"]),
        ({"siblings": 5}, ["siblings"], ["base", "siblings-3", "siblings-4", "siblings-6"]),
        ({}, ["max_steps", "continuations"], ["base", "continuations-2", "max-steps-5"]),
        ({"recipe": "continuation"}, ["exploration"], ["base", "exploration-0.5"]),
        (
            {"recipe": "continuation", "exploration": 1.0},
            ["exploration"],
            ["base", "exploration-0.5", "exploration-1.414"],
        ),
        ({"temperature": 0.0}, ["temperature"], ["base", "temperature-0.7", "temperature-1", "temperature-1.3"]),
        ({"recipe": "prorag"}, ["temperature"], ["base", "temperature-0.7", "temperature-1", "temperature-1.3"]),
        ({"temperature": 0.7}, ["temperature"], ["base", "temperature-1", "temperature-1.3"]),
        ({"recipe": "released"}, ["max_steps"], ["base", "max-steps-5", "max-steps-7"]),
    ],
)
def test_one_setting_at_a_time_is_varied_around_the_base(
    settings: dict[str, Any], vary: list[str], names: list[str]
) -> None:
    """A value that the base has already is no trial of its own; the order is that of the table."""
    base = GenerateSettings(run=Path("runs/t"), **settings)
    assert [trial.name for trial in plan_trials(base, vary)] == names


@pytest.mark.parametrize(
    ("recipe", "unused"),
    [
        ("economy", {"exploration"}),
        ("continuation", set()),
        ("released", {"continuations"}),
        ("reasonrag", {"continuations"}),
        ("prorag", {"continuations"}),
        ("ragym", {"continuations", "exploration"}),
    ],
)
def test_by_default_everything_is_varied_that_the_recipe_uses(recipe: str, unused: set[str]) -> None:
    """A c that no formula reads, or continuations that nobody samples, would be tried for nothing."""
    base = GenerateSettings.model_validate({"run": "runs/t", "recipe": recipe})
    assert {name for trial in plan_trials(base) for name in trial.changed} == set(VARIED) - unused


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--vary", "sibling"],
            r"tune does not vary sibling; did you mean 'siblings'\? choose from ",
        ),
        (["--vary", "exploration"], "recipe economy does not use exploration; choose from"),
        (["--vary", "max-steps", "--steps-by-hops"], "recipe economy with --steps-by-hops does not use max-steps"),
        (["--vary", "continuations", "--recipe", "released"], "recipe released does not use continuations"),
        (["--pilot", 1], "--pilot: must be at least 2"),
        (["--min-confidence", 2], "--min-confidence: must be at most 1"),
        (["--dataset", "atlass"], "there is no data set 'atlass'"),
        (["--dataset", "atlas", "--model", "my-own/model", "--max-cost", 1], "--max-cost needs the price"),
        (["--exploration", 1], "--exploration is the constant c of UCT and PUCT, which recipe economy does not use"),
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
    done = reasonrag("tune", "--pilot", 2, "--run", "runs/main")
    assert (done.status, "runs/main is a run directory of generate" in done.err) == (2, True)


def test_another_base_needs_another_directory(reasonrag: Reasonrag, shared: Shared) -> None:
    """The trials of two bases would stand side by side as if they could be compared."""
    shared.copy("tuned-siblings", lambda: reasonrag(*SIBLINGS))
    done = reasonrag(*SIBLINGS, "--seed", 7)
    assert done.status == 2
    assert "runs/t/trials/base holds a run with another configuration" in done.err


def test_two_at_once_do_not_write_to_one_journal(reasonrag: Reasonrag) -> None:
    """Also where they are at different trials."""
    Path("runs/t").mkdir(parents=True)
    with only_writer(Path("runs/t")):
        done = reasonrag(*SIBLINGS)
    assert (done.status, "runs/t is being written by another reasonrag" in done.err) == (2, True)


def test_tune_has_no_ranks_whatever_those_of_generate_are() -> None:
    """What reasonrag.toml says of them is for generate."""
    asked: dict[str, Any] = {"dataset": "atlas", "model": "offline", "pilot": 3, "vary": ["siblings"]}
    one = package.tune(**asked, run="runs/one")
    Path("reasonrag.toml").write_text('[generate]\nshard = "0/2"\non = "ray"\n')
    assert package.tune(**asked, run="runs/two").trials == one.trials


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"shard": "0/2"}, "leave out --shard"),
        ({"limit": 5}, "`pilot` says how many"),
        ({"value_model": "offline"}, "tune varies the teacher's settings only: leave out `value_model`"),
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
    assert reasonrag(*SIBLINGS, "--value-base-url", address).status == 2
    monkeypatch.setenv("REASONRAG_VALUE_TEMPERATURE", "0")
    Path("reasonrag.toml").write_text(f'[generate]\nvalue_base_url = ["{address}"]\n')
    done = reasonrag(*SIBLINGS)
    assert (done.status, "leave out --value-base-url, --value-temperature" in done.err) == (2, True)
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
    """Pairs of evaluation questions, say: a warning of a trial would otherwise be in a summary that nobody reads."""
    flags = ["--split", "test", "--pilot", 2, "--max-calls-per-question", 24, "--vary", "siblings", "--run", "runs/t"]
    done = reasonrag("tune", *flags)
    warnings = json.loads(Path("runs/t/tuning.json").read_text())["warnings"]
    assert warnings == json.loads(Path("runs/t/trials/base/summary.json").read_text())["warnings"]
    assert warnings
    for each in warnings:
        assert done.err.count(f"warning: {each}") == 1


def test_labels_of_a_judge_are_not_suggested_which_is_said_before(reasonrag: Reasonrag) -> None:
    common = ["--pilot", 2, "--max-calls-per-question", 24, "--vary", "max-steps", "--run", "runs/t"]
    assert "and none is suggested" in reasonrag("tune", *common, "--recipe", "ragym").err
