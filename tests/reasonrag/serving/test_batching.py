"""Tokens of many rows at once are those that transformers' `generate` gives each row alone, in this environment."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the embed extra is not installed")
transformers = pytest.importorskip("transformers", reason="the embed extra is not installed")

from reasonrag.serving.batching import Decoder, Generation, draw  # noqa: E402 - needs torch

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 200,
}


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))


def mistral() -> Any:
    """Sees the last 48 tokens only."""
    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=48)
    return transformers.MistralForCausalLM(config)


def gpt2() -> Any:
    """Has 128 positions and no more."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 200, "n_positions": 128}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


def decoded(model: Any, *requests: list[tuple[tuple[int, ...], int]], max_batch: int) -> list[Generation]:
    """Greedy replies to (prompt, most tokens) of some requests, all of which are there from the beginning."""
    decoder = Decoder(model, None, ends=[], max_batch=max_batch)
    rows: list[Generation] = []
    for asked in requests:
        group = [Generation(prompt, 0, 1, most, (), 0) for prompt, most in asked]
        decoder.submit(group)
        rows += group
    worker = threading.Thread(target=decoder.run)
    worker.start()
    for row in rows:
        row.result(timeout=120)
    decoder.stop()
    worker.join()
    return rows


def alone(model: Any, prompt: tuple[int, ...], most: int) -> list[int]:
    """What `generate` says."""
    with torch.inference_mode():
        ids = torch.tensor([prompt])
        said = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=most,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=-1,
        )
    return said[0, len(prompt) :].tolist()


@pytest.mark.parametrize("made", [llama, mistral, gpt2])
def test_rows_get_what_generate_says_to_each(made: Any) -> None:
    """Prompts with a common beginning of 70 tokens and 1 to 39 of their own; rows leave, some as soon as they entered,
    and others take their places."""
    torch.manual_seed(0)
    draws = random.Random(0)
    model = made().eval()
    with torch.no_grad():
        for weights in model.parameters():  # so that replies differ by what is asked
            weights.mul_(6 if weights.dim() > 1 else 1)
    head = tuple(draws.choices(range(200), k=70))
    asked = [
        ((*head, *draws.choices(range(200), k=draws.randint(1, 39))), draws.choice([1, 2, 5, 12, 16]))
        for _ in range(40)
    ]
    rows = decoded(model, asked, max_batch=16)
    said = [row.reply for row in rows]
    assert said == [alone(model, *each) for each in asked]
    assert len(set(map(tuple, said))) > 20


@pytest.fixture
def reads() -> Iterator[tuple[Any, list[int]]]:
    """A model, and the first token of each prompt that it reads."""
    torch.manual_seed(0)
    model, found = llama().eval(), list[int]()

    def note(_: object, __: object, told: dict[str, Any]) -> None:
        if told["input_ids"].shape[1] > 1:
            found.extend(told["input_ids"][:, 0].tolist())

    with model.register_forward_pre_hook(note, with_kwargs=True):
        yield model, found


def test_a_prompt_is_read_once_for_all_replies_of_a_request(reads: tuple[Any, list[int]]) -> None:
    """Though one place at a time is free; in parts where they are more than a fourth of the batch, which all enter."""
    model, read = reads
    asked = [((each,) * 20, 4) for each in range(12)] + [((99,) * 20, 50)]
    requests = ([(prompt, 3 + each) for each in range(count)] for prompt, count in asked)
    decoded(model, *requests, max_batch=16)
    assert read[:12] == list(range(12))
    assert set(read[12:]) == {99}
    assert len(read[12:]) <= 13


def test_a_prompt_whose_replies_nobody_wants_any_more_is_not_read(reads: tuple[Any, list[int]]) -> None:
    """Here since the prompt before it was read."""
    model, read = reads
    decoder = Decoder(model, None, ends=[], max_batch=16)
    first, other, last = (Generation((each, each), 0, 1, most, (), 0) for each, most in ((1, 1), (2, 5), (3, 1)))
    first.add_done_callback(lambda _: other.cancel())
    last.add_done_callback(lambda _: decoder.stop())
    for row in (first, other, last):
        decoder.submit([row])
    decoder.run()
    assert read == [1, 3]


def test_a_row_that_ended_at_the_last_position_does_not_end_the_others() -> None:
    """It stays in the batch until half of it has ended; its next position does not exist."""
    torch.manual_seed(0)
    model = gpt2().eval()
    asked = [(tuple(range(100)), 28), *((tuple(range(each, each + 20)), 60) for each in range(5))]
    rows = decoded(model, asked, max_batch=8)
    assert [len(row.reply) for row in rows] == [28, *[60] * 5]


@pytest.mark.parametrize("most", [[4, 4, 4, 12], [2, 12, 12, 12]], ids=["joined", "replaced"])
def test_a_reply_that_is_cancelled_while_rows_change_places_changes_no_other(most: list[int]) -> None:
    """Another thread cancels it at any moment, here after each number of looks that the decoder takes at it."""
    torch.manual_seed(0)
    model = llama().eval()
    prompts = [tuple(range(each, each + 20)) for each in range(0, 120, 15)]
    asked = [(prompt, most[place % 4]) for place, prompt in enumerate(prompts)]
    expected = [alone(model, *each) for each in asked]

    class Fickle(Generation):
        """Is no longer wanted after it was looked at so often."""

        looks = 0

        def done(self) -> bool:
            self.looks -= 1
            return (self.looks < 0 and self.cancel()) or super().done()

    for looks in range(60):
        decoder = Decoder(model, None, ends=[], max_batch=4)
        rows: list[Generation] = []

        def stop_after_all(_: object, rows: list[Generation] = rows, decoder: Decoder = decoder) -> None:
            if all(each.done() for each in rows if not isinstance(each, Fickle)):
                decoder.stop()

        for place, (prompt, count) in enumerate(asked):
            made = Fickle if place == 1 else Generation
            rows.append(made(prompt, temperature=0, top_p=1, max_tokens=count, stop=(), seed=0))
            rows[-1].add_done_callback(stop_after_all)
        rows[1].looks = looks  # type: ignore[attr-defined]
        decoder.submit(rows)
        decoder.run()
        said = [(row.exception(), row.reply) for place, row in enumerate(rows) if place != 1]
        assert said == [(None, each) for place, each in enumerate(expected) if place != 1], looks


def test_logits_that_are_not_finite_name_a_word_all_the_same() -> None:
    row = Generation((1,), 1, 1, 1, (), 0)
    assert 0 <= draw([row], torch.full((1, 10), float("nan"))).item() < 10


@pytest.mark.parametrize("temperature", [0, 1e-45, 1e-39, 1e-3])
def test_a_low_temperature_takes_the_most_likely_token(temperature: float) -> None:
    row = Generation((1,), temperature, 1, 1, (), 0)
    assert draw([row], torch.tensor([[1.0, 20.0, 3.0]])).tolist() == [1]
