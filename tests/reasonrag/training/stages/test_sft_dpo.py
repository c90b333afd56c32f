"""What `train --recipe sft-dpo` refuses and shows before anything is started; test_train.py trains with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from reasonrag.errors import InputError
from reasonrag.terminal import show
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.stages.training import TrainingResult
from tests.helpers.shared import Shared


@pytest.fixture
def data_set(shared: Shared) -> Path:
    """Pairs and best paths of a run, and a folder that passes for a model until it is looked into."""

    def make() -> None:
        reasonrag.generate(dataset="atlas", limit=2, run="runs/a")
        reasonrag.pairs("runs/a", out="data/a", format=["sft"])
        reasonrag.pairs("runs/a", out="data/pairs-only")
        reasonrag.import_published("data/a/RAG_ProGuide.json", out="data/imported")
        Path("models/tiny-qwen2").mkdir(parents=True)
        Path("models/tiny-qwen2/config.json").write_bytes(orjson.dumps({"model_type": "qwen2"}))

    shared.copy("data-for-a-recipe", make)
    return Path("data/a")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no data": ({"data": None}, "`data` is needed"),
    "no data and no recipe": ({"data": None, "recipe": None}, "`data` is needed"),
    "no best paths": (
        {"data": "data/pairs-only"},
        r"no rag_proguide_sft.*reasonrag pairs data/pairs-only --format sft --out data/pairs-only",
    ),
    "imported": (
        {"data": "data/imported"},
        r"imported.*reasonrag pairs data/imported --format sft-chosen.*sft\.dataset=rag_proguide_sft_chosen",
    ),
    "a configuration of SFT": ({"config": "smoke-cpu-sft"}, "not the DPO configuration of a family"),
    "two machines": ({"nodes": 2, "node_rank": 0, "master": "h"}, "runs on one machine"),
    "a base for DPO": ({"set": ["dpo.model_name_or_path=m"]}, r"dpo\.model_name_or_path.*give sft\.model_name_or_path"),
    "merging": ({"merge": "m"}, "`merge` trains nothing"),
    "an unknown recipe": ({"recipe": "sft"}, "sft-dpo"),
}


@pytest.mark.parametrize(("flags", "says"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_trained_is_refused_before_anything_is_started(
    flags: dict[str, Any], says: str, data_set: Path
) -> None:
    """With what to do; no folder is made."""
    given = {"config": "smoke-cpu-dpo-full", "recipe": "sft-dpo", "data": data_set, "out": "saves/a"} | flags
    with pytest.raises(InputError, match=says):
        reasonrag.train(**given)
    assert not Path("saves").exists()


def test_a_dry_run_shows_the_stages_before_the_last_and_what_was_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    record = TrainingRecord.model_construct(
        resolved={"seed": 2},
        config_hash="c",
        notes=[],
        environment={},
        command=["llamafactory-cli"],
        set_aside=["--allow report_to"],
    )
    stages = {"sft": {"seed": 1}, "dpo": {"seed": 2}}
    planned = TrainingResult.model_construct(state="dry run", out="saves", record=record, stages=stages, objections=[])
    show(planned.shown())
    shown = capsys.readouterr()
    assert shown.out.index("stage sft: ") < shown.out.index("seed: 1") < shown.out.index("seed: 2")
    assert "allowed: --allow report_to" in shown.err
