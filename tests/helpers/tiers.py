"""Which tests are of the second tier, and why: `make test` leaves them to `make test-all`.

Decides by file, by test and by fixture. A test is of the first tier unless it is named here: either it needs what takes
gigabytes or minutes, or it tries in every combination what a test of the first tier tries in one. Knows nothing of what
tests check.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CRITICS = (
    "a_training_that_was_interrupted_goes_on_from_its_checkpoint_and_then_is_finished",
    "prorags_configuration_trains_all_weights_and_takes_the_best_checkpoint",
    "critics_of_folds_have_each_seen_the_questions_of_the_others_only",
)
ROUNDS = (
    "critics_are_trained_anew_in_each_round",
    "what_critics_would_be_refused_for_is_found_first_and_attempts_stay_with_their_questions",
    "what_was_drawn_is_not_drawn_again_where_the_training_failed",
)
SECOND_TIER: dict[str, tuple[str, ...]] = {
    "LLaMA-Factory, in an environment of its own": ("train_python",),
    "a Ray cluster": ("ray_address",),
    "browsers, themes and sizes": (
        *("browser", "end_to_end/test_page_watch.py", "reasonrag/viewing/test_view_page.py"),
        "end_to_end/test_demo.py::test_pictures_taken_anew_show_what_the_kept_ones_show",
    ),
    "torch: encoders, critics and servers of real models": (
        *("minilm", "offline", "small_bert"),
        "benchmarks/test_critics.py",
        "end_to_end/test_grpo_with_trl.py",
        "end_to_end/test_trainers_of_conversations.py",
        *(f"reasonrag/critics/test_train.py::test_{each}" for each in CRITICS),
        "reasonrag/retrieval/test_flashrag.py",
        *(f"reasonrag/training/test_rounds.py::test_{each}" for each in ROUNDS),
        *(f"reasonrag/serving/test_{each}.py" for each in ("batching", "chat_template", "critic_server", "server")),
    ),
    "kills at fifty moments, and before every change to a file": (
        "end_to_end/test_chaos.py::test_a_run_killed_at_fifty_random_moments_ends_like_an_undisturbed_one",
        "end_to_end/test_kills.py::test_a_killed_export_never_mixes_parts_and_the_same_command_completes_it",
        "end_to_end/test_kills.py::test_no_temporary_file_or_folder_outlives_the_next_command",
        "end_to_end/test_cut_prompts.py::test_the_mark_survives_a_stop_and_a_merge",
    ),
    "every data set that was published": (
        "end_to_end/test_main_job.py::test_real_questions_become_rollouts_and_pairs_over_http",
        "reasonrag/curation/test_warm_up.py::test_on_musique_faults_are_caught_and_sound_rows_are_kept",
    ),
    "every command and cell of the documentation and of deploy/": (
        "end_to_end/test_deploy.py",
        "end_to_end/test_docs.py::test_every_command_and_every_call_has_its_page",
        "end_to_end/test_docs.py::test_a_reader_of_the_site_fetches_nothing_from_elsewhere",
        "end_to_end/test_notebooks.py::test_a_notebook_runs_and_its_outputs_are_current",
        "end_to_end/test_readme.py::test_every_command_of_the_pages_runs",
        "end_to_end/test_readme.py::test_the_table_of_costs_is_what_the_command_above_it_says",
    ),
    "the screen of every command, at two widths": ("end_to_end/test_screens.py",),
    "experiments of benchmarks/": (
        "benchmarks/test_proof.py",
        "end_to_end/test_gold_teacher.py",
        "end_to_end/test_gpu_smoke.py",
        "end_to_end/test_loop.py",
        "end_to_end/test_reasonrag_tables.py",
    ),
    "other environments, from a package registry": tuple(
        f"end_to_end/test_{each}.py" for each in ("install", "real_model", "verifiers_taskset")
    ),
}
"""Reason -> names: a file or a test of it, below tests/, or a fixture, which everything that takes it needs."""

FIRST_TIER = {
    "reasonrag/training/test_train.py::test_every_stage_trains_from_what_pairs_wrote": "the one journey of `train`",
}
"""Tests for which the fixture is no reason."""

REASONS = {name: reason for reason, names in SECOND_TIER.items() for name in names}


def reason_for_the_second_tier(item: pytest.Item) -> str | None:
    """None: it is of the first."""
    file = file_of(item.path)
    test = f"{file}::{getattr(item, 'originalname', item.name)}"
    if test in FIRST_TIER:
        return None
    known = (test, file, *getattr(item, "fixturenames", ()))
    return next((REASONS[name] for name in known if name in REASONS), None)


def is_all_of_the_second_tier(path: Path) -> bool:
    """A file that the first tier need not even import."""
    return file_of(path) in REASONS


def file_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
