"""The loss of a critic of values: a row counts by its weight, whichever rows it shares a batch with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reasonrag.critics.training_script import TrainingJob, _padded, _trainer

torch, datasets = pytest.importorskip("torch"), pytest.importorskip("datasets")
transformers, trl = pytest.importorskip("transformers"), pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # transformers', of TRL's defaults


def trainer(rows: list[dict[str, Any]], out: Path) -> Any:
    """Of a random Qwen2 of two tokens, in batches of one row."""
    torch.manual_seed(0)
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Qwen2Config(vocab_size=8, num_key_value_heads=1, num_labels=1, pad_token_id=0, **small)
    job = TrainingJob(
        kind="value",
        base="",
        out=str(out),
        rows="",
        held_out=None,
        margin_scale=0.0,
        max_length=None,
        arguments={},
        lora=None,
    )
    arguments = trl.RewardConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        report_to="none",
        remove_unused_columns=False,
        label_names=["values"],
    )
    given = {"args": arguments, "train_dataset": datasets.Dataset.from_list(rows), "eval_dataset": None}
    return _trainer(job, transformers.Qwen2ForSequenceClassification(config).eval(), _Tokenizer(), given)


class _Tokenizer:
    pad_token_id = 0


def test_a_row_alone_in_its_batch_counts_by_its_weight_against_the_mean_of_the_data_set(tmp_path: Path) -> None:
    rows = [{"input_ids": [3, 4], "values": 1.0, "weights": weight} for weight in (1.0, 0.25)]
    found = trainer(rows, tmp_path)
    well_known, hardly_known = (found.compute_loss(found.model, _padded([row], 0)).item() for row in rows)
    assert well_known == pytest.approx(4 * hardly_known)
    together = found.compute_loss(found.model, _padded(rows, 0)).item()
    assert together == pytest.approx((well_known + hardly_known) / 2), "as by batches of one, accumulated"
    even = trainer([row | {"weights": 1.0} for row in rows], tmp_path)
    assert together == pytest.approx(even.compute_loss(even.model, _padded(rows[:1], 0)).item()), "the usual size"
