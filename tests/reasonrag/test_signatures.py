"""The public calls as a user of Python sees them: signatures, documentation, examples and errors."""

from __future__ import annotations

import doctest
import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from reasonrag.errors import InputError, ReasonragError
from tests.helpers.command_line import Reasonrag

CALLS = [name for name in reasonrag.__all__ if name != "__version__"]
OF_TRAINING = ("doctor", "train", "train_critic", "evaluate_critic", "train_policy", "rounds")
"""Their examples need an environment that trains."""
IN_ORDER = tuple(
    "estimate generate merge load_rollouts pairs load_pairs audit show stats view review_report review_sample "
    "calibrate tune ask evaluate compare corpus_build corpus_questions index_build index_check search Environment "
    "index_serve import_published publish check_renderer warm_up".split()
)


def test_every_call_has_an_example_and_names_its_parameters() -> None:
    assert sorted([*IN_ORDER, *OF_TRAINING]) == CALLS
    for name in CALLS:
        call = getattr(reasonrag, name)
        said = inspect.getdoc(call) or ""
        assert "Example:\n    >>> " in said, name
        for parameter in inspect.signature(call).parameters.values():
            assert f"\n    {parameter.name}: " in said, (name, parameter.name)
            assert parameter.kind != parameter.VAR_KEYWORD, name


def examples(*names: str) -> None:
    """Run the examples of these calls, one after another, as one session."""
    names_known: dict[str, object] = {"reasonrag": reasonrag}
    runner = doctest.DocTestRunner(verbose=False)
    for name in names:
        text = inspect.getdoc(getattr(reasonrag, name)) or ""
        test = doctest.DocTestParser().get_doctest(text, names_known, name, None, None)
        runner.run(test, clear_globs=False)
        names_known |= test.globs
    assert runner.summarize(verbose=False).failed == 0


def test_the_examples_run_in_the_order_of_the_work() -> None:
    Path("handbook").mkdir()
    Path("handbook/leave.md").write_text("# Leave\n\nEveryone has 28 days.\n\n## Parents\n\nUp to 14 months together.")
    examples(*IN_ORDER)


def test_the_examples_of_training_run(train_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", str(train_python))
    examples("doctor", "train")


def test_a_wrong_setting_is_one_error_without_the_one_that_caused_it() -> None:
    with pytest.raises(InputError, match="limit") as caught:
        reasonrag.generate(dataset="atlas", limit=-3, run="runs/x")
    shown = traceback.format_exception(caught.value)
    assert len([line for line in shown if line.startswith("Traceback")]) == 1
    assert "pydantic" not in "".join(shown)
    assert not Path("runs/x").exists()


NAMED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a value out of range": ("generate", {"limit": -3}, r"^`limit`: must be at least 1"),
    "a setting that is unknown": ("pairs", {"runs": "x", "max_row_token": 3}, "^max_row_token: .*'max_row_tokens'"),
    "what one needs": ("generate", {"value_base_url": "http://x"}, "^`value_base_url` needs .*: give `value_model`"),
    "a truth of the call itself": ("generate", {"replay": True, "run": "x"}, "leave out `replay=True` to explore"),
    "a truth with an opposite": ("publish", {"directory": "x", "repo": "a b", "private": True}, "^`repo` 'a b'"),
    "one that the call itself has": ("estimate", {"shard": "0/2"}, "^`shard`: an estimate is of a whole run"),
    "commands to run": ("view", {"path": "x"}, "reasonrag generate --run RUN, reasonrag pairs RUN --out DIR, or"),
    "a command, then the call": ("compare", {"runs": ["x"]}, "reasonrag compare RUN RUN, .* or `group` NAME"),
}


@pytest.mark.parametrize(("call", "given", "said"), NAMED.values(), ids=NAMED.keys())
def test_errors_of_calls_name_arguments(
    call: str, given: dict[str, Any], said: str, request: pytest.FixtureRequest
) -> None:
    """Flags stay in the commands that an error says to run, and on the command line, which may have run before."""
    command_line: Reasonrag = request.getfixturevalue("reasonrag")
    assert "--limit: must be" in command_line("generate", "--limit", -3).err
    with pytest.raises(ReasonragError, match=said):
        getattr(reasonrag, call)(**given)
