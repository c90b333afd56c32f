"""Settings: flags before environment before file before defaults, and errors that name where a value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preference import ExportOptions, PairingRules
from reasonrag.critics.settings import EvaluateCriticSettings
from reasonrag.curation.pairs_settings import PairsSettings
from reasonrag.data.settings import CorpusSettings
from reasonrag.errors import InputError
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.settings import Settings, resolve
from reasonrag.training.settings import TrainSettings


def settings_of(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, file: str | None = None
) -> GenerateSettings:
    """Settings of generate from these places; the working directory is the test's own."""
    if file is not None:
        Path("reasonrag.toml").write_text(file, "utf-8")
    with pytest.MonkeyPatch.context() as changed:
        for name, value in (environment or {}).items():
            changed.setenv(name, value)
        return resolve(GenerateSettings, "generate", {"run": "runs/one"} | (flags or {}))


@pytest.mark.parametrize(
    ("flags", "environment", "file", "seed"),
    [
        ({}, {}, None, 0),
        ({}, {}, "[generate]\nseed = 1", 1),
        ({}, {"REASONRAG_SEED": "2"}, "[generate]\nseed = 1", 2),
        ({"seed": 0}, {"REASONRAG_SEED": "2"}, "[generate]\nseed = 1", 0),
        ({"seed": None}, {"REASONRAG_SEED": ""}, "[generate]\nseed = 1", 1),
        ({}, {}, "[pairs]\nmin_margin = 0.5", 0),
    ],
)
def test_flags_go_before_environment_before_file_before_defaults(
    flags: dict[str, Any], environment: dict[str, str], file: str | None, seed: int
) -> None:
    """None and the empty string are no values; zero is one. Only the command's own table and settings count."""
    assert settings_of(flags, environment, file).seed == seed


def test_each_setting_may_come_from_another_place() -> None:
    """Not taken whole; a file may spell it like the flag, `max-steps`, or like Python, `index_home`."""
    found = settings_of(
        {"limit": 5},
        {"REASONRAG_TOP_K": "4", "REASONRAG_MODEL": "gpt-4o"},
        '[generate]\ntop-k = 9\nmax-steps = 4\nrecipe = "economy"\nindex_home = "elsewhere"',
    )
    assert (found.limit, found.top_k, found.max_steps, found.model, found.recipe) == (5, 4, 4, "gpt-4o", "economy")
    assert (found.index_home, found.split, found.run) == (Path("elsewhere"), "train", Path("runs/one"))


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message"),
    [
        ({"sed": 3}, {}, None, r"^sed: generate has no setting 'sed'; did you mean 'seed'\? choose from abort_"),
        ({}, {}, "[generate]\nsed = 3", r"reasonrag\.toml, \[generate\]: generate has no setting 'sed'; did you mean"),
        ({"seed": -1}, {}, None, r"--seed: .*must be at least 0 \(got -1\)"),
        ({}, {"REASONRAG_SEED": "many"}, None, r"REASONRAG_SEED: .*must be a whole number.*\(got 'many'\)"),
        ({}, {"REASONRAG_STYLE": "terse"}, None, r"REASONRAG_STYLE: must be 'short' or 'long' \(got 'terse'"),
        ({"limit": 0}, {"REASONRAG_LIMIT": "5"}, "[generate]\nlimit = 7", r"--limit: .*\(got 0\)"),
        ({}, {}, "[generate]\nlimit = 'all'", r"reasonrag\.toml, \[generate\] limit: .*\(got 'all'\)"),
        ({}, {}, "[genrate]\nseed = 3", r"no command reads the table \[genrate\]; did you mean 'generate'\?"),
        ({}, {}, "seed = 3", r"no command reads the setting 'seed' outside the tables; .*choose from ask, audit"),
        ({}, {}, "generate = 3", r"reasonrag\.toml: \[generate\] must be a table"),
        ({}, {}, "[generate", r"cannot read reasonrag\.toml: "),
        ({"extra_body": "nope"}, {}, None, r"--extra-body: this is not JSON .*quote it for the shell"),
        ({"extra_body": "[1]"}, {}, None, "--extra-body: this is not a JSON object"),
        ({"extra_body": '{"seed": 1}'}, {}, None, "--extra-body: 'seed' is a field that reasonrag sets itself"),
        (
            {"extra_body": '{"a": {"b": "sk-abcdefghij1234567890"}}'},
            {},
            None,
            "--extra-body: this contains what looks like a key",
        ),
        ({"extra_body": '{"a":' * 300 + "1" + "}" * 300}, {}, None, "--extra-body: this cannot be sent as JSON"),
        ({"extra_body": {"a": 10**30}}, {}, None, "--extra-body: this cannot be sent as JSON"),
    ],
)
def test_a_wrong_setting_names_its_source_and_what_is_wrong(
    flags: dict[str, Any], environment: dict[str, str], file: str | None, message: str
) -> None:
    """The user learns whether to look at the command, the environment or the file."""
    with pytest.raises(InputError, match=message):
        settings_of(flags, environment, file)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ('{"reasoning_effort": "low"}', {"reasoning_effort": "low"}),
        ({"b": 1, "a": {"d": 1, "c": [2]}}, {"a": {"c": [2], "d": 1}, "b": 1}),
        ("{}", None),
        (None, None),
    ],
)
def test_further_fields_of_a_body_are_a_json_object(given: object, fields: object) -> None:
    """As text or as an object; its keys in order, since the order changes no request. An empty one is none."""
    found = settings_of({"extra_body": given}).extra_body
    assert (found, list(found or {})) == (fields, sorted(found or {}))


def test_a_setting_that_is_required_is_asked_for_as_a_flag() -> None:
    with pytest.raises(InputError, match=r"^--folder is required: Folder of web pages"):
        resolve(CorpusSettings, "corpus", {})


@pytest.mark.parametrize(
    ("flags", "directory"),
    [
        ({}, "runs/atlas-train-economy"),
        ({"dataset": "pop_qa", "split": "dev"}, "runs/popqa-dev-economy"),
        ({"questions": "mine/handbook.jsonl", "recipe": "released"}, "runs/handbook-train-released"),
        ({"run": "runs/a", "dataset": "nq"}, "runs/a"),
    ],
)
def test_a_run_is_named_after_questions_and_recipe_unless_it_is_named(flags: dict[str, Any], directory: str) -> None:
    """Data sets by our names for them."""
    assert str(resolve(GenerateSettings, "generate", flags).run_directory) == directory


@pytest.mark.parametrize(
    ("flags", "model", "directory"),
    [
        ({"dataset": "HotpotQA"}, "saves/h", "evals/hotpotqa-dev-agent-h"),
        ({"dataset": "popqa", "method": "rag"}, "Qwen/Qwen2.5-7B", "evals/popqa-dev-rag-Qwen2.5-7B"),
        ({"dataset": "nq"}, "ft:gpt-4o:acme", "evals/nq-dev-agent-ft-gpt-4o-acme"),
    ],
)
def test_an_evaluation_is_named_after_questions_method_and_model(
    flags: dict[str, Any], model: str, directory: str
) -> None:
    assert str(resolve(EvaluateSettings, "evaluate", flags).default_run(model)) == directory


def test_a_data_set_is_one_name_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as a list of one."""
    for given in ("nq", ["nq"]):
        assert resolve(GenerateSettings, "generate", {"dataset": given}).dataset == ["nq"]
    assert GenerateSettings.model_validate({"dataset": None}).dataset == []
    monkeypatch.setenv("REASONRAG_DATASET", "popqa hotpotqa")
    for model, command in ((GenerateSettings, "generate"), (EvaluateSettings, "evaluate")):
        with pytest.raises(InputError, match=r"^REASONRAG_DATASET: give one data set; make a run of each"):
            resolve(model, command, {"run": "e"})


def test_a_folder_may_be_given_as_a_path_where_a_name_or_an_address_may_stand_too() -> None:
    place = Path("saves") / "h"
    asked = resolve(EvaluateSettings, "evaluate", {"run": "evals/a", "model": place, "critic": place})
    assert (asked.model, asked.critic) == ("saves/h", "saves/h")
    judged = resolve(EvaluateCriticSettings, "evaluate-critic", {"against": place})
    assert judged.against == "saves/h"
    for given in (place, [place], "saves/h"):
        found = resolve(PairsSettings, "pairs", {"critic": given})
        assert found.critic == ["saves/h"]


def test_pairs_are_made_by_the_rules_of_pairing_unless_told_otherwise() -> None:
    """Their defaults stand in one place. Zero is no limit where a limit of zero would be no pair: of pairs and tokens;
    a share of 0 is a share, a margin of 0 a margin."""
    found = resolve(PairsSettings, "pairs", {"out": "x"})
    assert (found.rules, found.options(refines=False)) == (PairingRules(), ExportOptions())
    zero = ("max_per_state", "max_row_tokens", "min_margin", "max_efficiency_only", "max_style_only")
    rules = resolve(PairsSettings, "pairs", {"out": "x"} | dict.fromkeys(zero, 0)).rules
    assert rules == PairingRules(min_margin=0, max_per_state=None, max_efficiency_only=0, max_style_only=0)


@pytest.mark.parametrize(
    ("model", "command", "line", "flag"),
    [
        (GenerateSettings, "generate", "yes = true", "--yes"),
        (PairsSettings, "pairs", "replace = true", "--replace"),
        (PairsSettings, "pairs", 'allow = ["secret"]', "--allow"),
        (TrainSettings, "train", 'allow_eval = ["nq/dev"]', "--allow-eval"),
        (EvaluateSettings, "evaluate", "allow-critic = true", "--allow-critic"),
    ],
)
def test_no_settings_file_switches_a_guard_off_for_good(
    model: type[Settings], command: str, line: str, flag: str
) -> None:
    """It is refused by name with the flag; said with the command it counts."""
    file, name = Path("reasonrag.toml"), flag.removeprefix("--").replace("-", "_")
    file.write_text(f"[{command}]\n{line}\n")
    message = rf"reasonrag.toml, \[{command}\] {name}: this guards every run.* give {flag} to the command"
    with pytest.raises(InputError, match=message):
        resolve(model, command, {})
    if line.endswith("true"):  # what it is without
        file.write_text(f"[{command}]\n{line.replace('true', 'false')}\n")
        assert not getattr(resolve(model, command, {}), name)
