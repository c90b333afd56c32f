"""Does a process reward help where the outcome is known? ProRAG's ablation in a world of 24 words; exploratory.

    .venv/bin/python benchmarks/process_reward.py --append benchmarks/RESULTS.md       some ten minutes on two cores

A policy of 30,000 weights is refined on its own right attempts (as ProRAG's stage 3) and then learns in rounds from its
attempts by outcome plus `beta` times a critic's score; beside it a critic whose scores were shuffled, and a policy that
was never refined and has more rounds instead. The critic is trained by TRL on sibling steps of the first policy, whose
values are means of attempts of its own. All arms of a seed begin with the same weights, and draw as many attempts.
Decides arms, sizes and the table; world, rows, advantage and loss are the tests' and the product's.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from datasets import Dataset
from reporting import publish, table
from transformers import Qwen2Config, Qwen2ForSequenceClassification, TrainingArguments
from trl import RewardConfig, RewardTrainer

from preference.candidate_records import QuestionRecord
from preference.export.formats import rl_rows
from reasonrag.training.policy.train import read_policy_rows
from reasonrag.training.policy.training_script import (
    Loss,
    log_probabilities,
    policy_trainer,
    tokenized,
    with_old,
    with_process_part,
)
from tests.helpers.word_world import ATTEMPTS, attempts_of, model, tokenizer

REFINEMENTS, ROUNDS = 2, 8
REFINED_BY, OF_THE_CRITIC, AT_THE_END = 160, 400, 400
"""Attempts at each question: in a round of refinement, for the critic, and for the last figure."""
LEAST_DRAWS, LEAST_DIFFERENCE = 5, 0.25
"""Of steps that the critic learns from, and of the values of two of them: what is less is chance."""
ARMS: Mapping[str, tuple[bool, float, bool]] = {
    "outcome": (True, 0.0, False),
    "beta .3": (True, 0.3, False),
    "beta .9": (True, 0.9, False),
    "beta .3, shuffled": (True, 0.3, True),
    "beta .9, shuffled": (True, 0.9, True),
    "outcome, not refined": (False, 0.0, False),
    "beta .3, not refined": (False, 0.3, False),
}
"""Whether it is refined, the weight of the process part, and whether the critic's scores are shuffled."""
_T = {2: 4.303, 4: 2.776, 6: 2.447, 8: 2.306, 10: 2.228, 14: 2.145, 22: 2.074, 30: 2.042}
"""Student's t of 95 % by degrees of freedom, as tables have it."""
_POWER = 0.9
"""Its quantile of 80 %, about, at these degrees of freedom."""
Scores = Mapping[tuple[str, str], float]
"""By prompt and step."""


def trained(policy: Any, rows: list[dict[str, Any]], loss: Any, seed: int, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            output_dir=out, per_device_train_batch_size=64, learning_rate=3e-3, use_cpu=True, save_strategy="no",
            report_to="none", remove_unused_columns=False, num_train_epochs=epochs, seed=seed, disable_tqdm=True,
            lr_scheduler_type="constant", logging_strategy="no",
        )  # fmt: skip
        policy_trainer(policy, arguments, with_old(rows, policy, 0, 64), 0, loss).train()


class Likelihood:
    """The loss of SFT, in the place of `Loss`."""

    kl = 0.0

    def of(self, logits: Any, batch: Mapping[str, Any], tokens: Any = None) -> Any:
        now, own = log_probabilities(logits, batch["labels"])
        return -(now * own).sum() / (own.sum() if tokens is None else tokens)


def rows_of(records: Sequence[QuestionRecord], scores: Scores) -> list[dict[str, Any]]:
    """As `train-policy` reads them; with scores, those of `prorag`."""
    lines = [row for record in records for row in rl_rows(record)]
    for row in lines:
        row["score"] = scores.get(place_of(row)) if scores else None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rl.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in lines))
        return read_policy_rows(file, "prorag" if scores else "outcome", "student")[0]


def place_of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["prompt"][-1]["content"], row["completion"][0]["content"]


def share_right(records: Sequence[QuestionRecord]) -> float:
    return mean(step.outcome for each in records for step in each.plain_steps if step.outcome is not None)


def critic_of(policy: Any, coder: Any, dice: random.Random, seed: int) -> tuple[Any, float]:
    """A critic of sibling steps, and its accuracy on pairs of other attempts of that policy."""
    sizes = policy.config.to_dict() | {"num_labels": 1, "pad_token_id": 0}
    critic = Qwen2ForSequenceClassification(Qwen2Config(**sizes))
    pairs, others = (pairs_of(attempts_of(policy, coder, dice, OF_THE_CRITIC)) for _ in range(2))
    rows = [{"chosen_ids": read(coder, *good), "rejected_ids": read(coder, *bad)} for good, bad in pairs]
    with tempfile.TemporaryDirectory() as out:
        arguments = RewardConfig(
            output_dir=out, per_device_train_batch_size=64, learning_rate=3e-3, use_cpu=True, save_strategy="no",
            report_to="none", num_train_epochs=40, seed=seed, disable_tqdm=True, logging_strategy="no", max_length=None,
            bf16=False, gradient_checkpointing=False,
        )  # fmt: skip
        RewardTrainer(critic, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=coder).train()
    critic.eval()
    found = scores_of(critic, coder, {place for pair in others for place in pair})
    return critic, mean(float(found[good] > found[bad]) for good, bad in others)


def pairs_of(records: Sequence[QuestionRecord]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Steps of one state whose values differ, the better one first; each distinct step once."""
    values = dict[tuple[str, str], list[float]]()
    for record in records:
        for row in rl_rows(record):
            values.setdefault(place_of(row), []).append(row["value"])
    by_state = defaultdict[str, list[tuple[float, tuple[str, str]]]](list)
    for place, found in values.items():
        if len(found) < LEAST_DRAWS:
            continue
        by_state[place[0]].append((mean(found), place))
    both = [pair for steps in by_state.values() for pair in combinations(sorted(steps), 2)]
    return [(better, worse) for (low, worse), (high, better) in both if high - low >= LEAST_DIFFERENCE]


def read(coder: Any, prompt: str, step: str) -> list[int]:
    turns = [("system", "system"), ("user", prompt), ("assistant", step)]
    said = [{"role": role, "content": content} for role, content in turns]
    return list(coder.apply_chat_template(said, tokenize=True, return_dict=False))


def scores_of(critic: Any, coder: Any, places: set[tuple[str, str]]) -> dict[tuple[str, str], float]:
    found = dict[tuple[str, str], float]()
    with torch.inference_mode():
        for place in sorted(places):
            found[place] = float(critic(input_ids=torch.tensor([read(coder, *place)])).logits[0, 0])
    return found


def shuffled(scores: Scores, seed: int) -> dict[tuple[str, str], float]:
    """Every step has the score of another one."""
    values = list(scores.values())
    random.Random(seed).shuffle(values)
    return dict(zip(scores, values, strict=True))


def refined_policy(seed: int, coder: Any) -> Any:
    """As `arm` refines it."""
    policy, dice = model(seed), random.Random(seed)
    for number in range(REFINEMENTS):
        refine(policy, attempts_of(policy, coder, dice, REFINED_BY), coder, number)
    return policy


def refine(policy: Any, records: Sequence[QuestionRecord], coder: Any, seed: int) -> None:
    good = [row for row in tokenized(rows_of(records, {}), coder) if row["advantage"] > 0]
    trained(policy, good, Likelihood(), seed, 3)


def arm(seed: int, name: str) -> tuple[str, list[float], float]:
    """Shares of right attempts before each round and at the end, and the critic's accuracy."""
    refined, beta, at_random = ARMS[name]
    coder, dice, right = tokenizer(), random.Random(seed), list[float]()
    policy, critic, accuracy = model(seed), None, 0.0
    known = dict[tuple[str, str], float]()
    for number in range(REFINEMENTS + ROUNDS):
        records = attempts_of(policy, coder, dice, REFINED_BY if number < REFINEMENTS else ATTEMPTS)
        right.append(share_right(records))
        if number < REFINEMENTS and refined:
            refine(policy, records, coder, number)
            continue
        if beta and critic is None:
            critic, accuracy = critic_of(refined_policy(seed, coder), coder, random.Random(seed), seed)
        if beta:
            places = {place_of(row) for record in records for row in rl_rows(record)}
            known |= scores_of(critic, coder, places - known.keys())
        scores = shuffled(known, number) if at_random else known
        rows = [*with_process_part(tokenized(rows_of(records, scores), coder), beta)]
        trained(policy, rows, Loss(), number, 3)
    return name, [*right, share_right(attempts_of(policy, coder, dice, AT_THE_END))], accuracy


def report(seeds: int, workers: int) -> Iterator[str]:
    jobs = [(seed, name) for seed in range(seeds) for name in ARMS]
    with ProcessPoolExecutor(workers) as pool:
        done = list(pool.map(arm, *zip(*jobs, strict=True)))
    ends, middle, accuracy = (defaultdict[str, list[float]](list) for _ in range(3))
    for name, right, judged in done:
        ends[name].append(right[-1])
        middle[name].append(right[REFINEMENTS])
        accuracy[name].append(judged)
    least = {name: (_T[2 * seeds - 2] + _POWER) * spread(ends, name) * (2 / seeds) ** 0.5 for name in ARMS}
    yield "\n**A process reward in a world of 24 words** (benchmarks/process_reward.py), exploratory"
    yield (
        f"\n{seeds} seeds; {REFINEMENTS} rounds of refinement on right attempts ({8 * REFINED_BY:,} attempts each), or "
        f"of reinforcement, then {ROUNDS} of reinforcement of {8 * ATTEMPTS}; right at the end of "
        f"{8 * AT_THE_END:,} attempts. The critics rank "
        f"{mean(accuracy['beta .3']):.0%} of sibling steps of other attempts as their values do. Smallest difference "
        "to `outcome` that this many seeds would show in four of five trials, at 5 %, two-sided."
    )
    against = {name: f"{mean(ends[name]) - mean(ends['outcome']):+.3f}" for name in ARMS}
    yield from table(
        "Share of right attempts",
        {
            "arm": list(ARMS),
            "after refinement": [f"{mean(each):.3f}" for each in middle.values()],
            "at the end": [f"{mean(each):.3f}" for each in ends.values()],
            "of each seed": [" ".join(f"{each:.2f}" for each in found) for found in ends.values()],
            "to outcome": ["", *list(against.values())[1:]],
            "smallest detectable": ["", *(f"{each:.3f}" for each in list(least.values())[1:])],
        },
    )


def spread(ends: Mapping[str, list[float]], name: str) -> float:
    """The standard deviation over seeds that an arm and `outcome` share."""
    return float(mean(stdev(ends[each]) ** 2 for each in (name, "outcome")) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, choices=[each // 2 + 1 for each in _T], help="[%(default)s]")
    parser.add_argument("--workers", type=int, default=2, help="processes [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    publish(report(asked.seeds, asked.workers), asked.append)


if __name__ == "__main__":
    main()
