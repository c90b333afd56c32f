"""A server that cuts prompts is known by the largest count; none that counts in its own way is suspected."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.llm.endpoint.prompt_window import CUT_FROM, PromptWindow, recorded_cut

Tells = Callable[[int, random.Random], float | None]
SYSTEM = {"think": (1007, 60, 1700), "read": (726, 300, 4500), "conclude": (465, 200, 1600)}
"""Bytes of the system turn, and the least and most of the user turn."""
BYTES_PER_TOKEN = {"English": 4.4, "German": 3.6, "Chinese": 2.2, "Hindi": 1.3, "numbers": 2.5}
LANGUAGES = [["English"], ["Chinese"], ["English", "Chinese"], ["English", "English", "Hindi"], list(BYTES_PER_TOKEN)]


def prompts(
    count: int, *, languages: Sequence[str] = ("English",), seed: int = 0, scale: float = 1
) -> Iterator[tuple[int, int]]:
    """Bytes and tokens of so many prompts like ours; scale: of the user turns."""
    dice = random.Random(seed)
    for _ in range(count):
        system, least, most = SYSTEM[dice.choice(("think", "read", "read", "conclude"))]
        user = int(dice.randint(least, most) * scale)
        language = dice.choice(languages)
        density = BYTES_PER_TOKEN[language] * dice.uniform(0.85, 1.15)
        yield system + user, int(system / 4.6 + user / density) + 12


def window_of(said: Iterator[tuple[int, int]]) -> PromptWindow:
    """What it makes of these bytes and counts."""
    window = PromptWindow()
    for size, count in said:
        window.add(size, count)
    return window


HONEST: dict[str, Tells] = {
    "exact": lambda tokens, _: tokens,
    **{f"to {step}": lambda tokens, _, step=step: round(tokens / step) * step for step in (10, 64, 100, 256, 1000)},
    **{f"up to {step}": lambda tokens, _, step=step: -(-tokens // step) * step for step in (10, 64, 100, 256, 1000)},
    **{f"down to {step}": lambda tokens, _, step=step: tokens // step * step for step in (10, 64, 100, 256, 1000)},
    "padded to 32, 128, 512, 2048": lambda tokens, _: next(
        each for each in (32, 128, 512, 2048, 8192, 1 << 15) if each >= tokens
    ),
    "padded to powers of two": lambda tokens, _: 1 << (tokens - 1).bit_length(),
    "one digit": lambda tokens, _: float(f"{tokens:.0e}"),
    "without the cached system turn": lambda tokens, dice: max(1, tokens - dice.choice((0, 96, 208, 208))),
    "without cached blocks": lambda tokens, dice: tokens - 16 * ((tokens - 1) // 16) if dice.random() < 0.7 else tokens,
    "nothing of what is cached": lambda tokens, dice: 0 if dice.random() < 0.5 else tokens,
    "now and then": lambda tokens, dice: tokens if dice.random() < 0.3 else None,
    "not at all": lambda *_: None,
    "always 700": lambda *_: 700,
    "the number of messages": lambda tokens, _: 1 + (tokens > 9),
    "characters": lambda tokens, _: tokens * 4,
    "words": lambda tokens, _: max(1, int(tokens * 0.67)),
    "up to 128, and a template": lambda tokens, _: -(-tokens // 128) * 128 + 3,
}


@pytest.mark.parametrize("languages", LANGUAGES, ids=" ".join)
@pytest.mark.parametrize("tells", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("scale", [0.3, 1, 3])
def test_an_honest_server_is_not_suspected_in_a_thousand_requests(
    tells: Tells, languages: list[str], scale: float
) -> None:
    """However it counts, and in whatever languages."""
    dice = random.Random(0)
    every = prompts(1000, languages=languages, scale=scale)
    window = PromptWindow()
    for number, (size, tokens) in enumerate(every):
        if count := int(tells(tokens, dice) or 0):
            window.add(size, count)
        assert number % 40 or window.cut_from is None


@pytest.mark.parametrize("passages", [(3, 100), (5, 200), (3, 512), (10, 256)], ids="{0[0]} of {0[1]} tokens".format)
@pytest.mark.parametrize("densities", [(4.5, 2.5), (4.5, 6.0), (3.3, 4.5, 6.0), (3.0, 4.4, 5.5, 7.0)], ids=str)
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_passages_of_equal_tokens_are_no_window(
    passages: tuple[int, int], densities: tuple[float, ...], steps: int
) -> None:
    """Token splitters make them: prompts that read have about the same tokens, whatever the bytes of their language."""
    for seed in range(4):
        dice, found = random.Random(seed), PromptWindow()
        for _ in range(600):
            own = dice.randrange(10, 25) + dice.randrange(steps) * dice.randrange(15, 30)
            read = dice.choice((0, passages[0] * passages[1] + dice.randrange(-4, 5)))
            size = 1800 + own * 4.5 + read * dice.gauss(dice.choice(densities), 0.15)
            found.add(int(size), 400 + own + read)
            assert found.cut_from is None


@pytest.mark.parametrize("languages", LANGUAGES, ids=" ".join)
@pytest.mark.parametrize(
    ("window", "scale"), [(300, 1), (700, 1), (950, 1), (1000, 2), (700, 3), (2048, 3), (4096, 9), (8000, 18)]
)
def test_a_window_is_noticed_after_a_few_dozen_prompts_that_exceed_it(
    window: int, scale: float, languages: list[str]
) -> None:
    """Its least length is that of a prompt that was cut, or nearly."""
    found, cut, least = PromptWindow(), 0, math.inf
    for size, tokens in prompts(1000, languages=languages, scale=scale):
        if tokens > window:
            cut, least = cut + 1, min(least, size)
        found.add(size, min(tokens, window))
        if found.cut_from is not None:
            break
    assert cut <= 60
    assert found.cut_from is not None
    assert least / 1.06 < found.cut_from


@pytest.mark.parametrize("longer", [(3500, 5000, 7000), (4000, 8000, 16000)], ids=str)
def test_three_prompts_of_clearly_growing_size_are_enough(longer: tuple[int, ...]) -> None:
    """With one count, after a few that were whole."""
    found = window_of((size, min(int(size / 4.4), 700)) for size in (8, 900, 1500, 2600, *longer))
    assert found.cut_from is not None
    assert 2600 < found.cut_from <= longer[0]


def test_an_alarm_is_said_once_and_withdrawn_by_longer_prompts_that_have_more_tokens() -> None:
    window, said = PromptWindow(), list[str]()

    def cut_from(*prompts: tuple[int, int]) -> int | None:
        for size, tokens in prompts:
            window.add(size, tokens)
            said.extend(filter(None, [window.news()]))
        return window.cut_from

    assert cut_from((300, 70), (600, 150), (800, 203), *((size, 701) for size in range(3000, 6000, 250)))
    assert cut_from(*((size, size // 4) for size in range(6000, 9000, 250))) is None
    assert [each.partition(":")[0][:30] for each in said] == ["seems to CUT PROMPTS of 2,986 "]


@given(st.integers(300, 700), st.randoms(use_true_random=False))
def test_the_order_of_answers_does_not_matter(window: int, dice: random.Random) -> None:
    """It is that of a network, of a session, of a rank: the least length is the same in the end."""
    every = [(size, min(tokens, window)) for size, tokens in prompts(300)]
    found = window_of(iter(every)).cut_from
    dice.shuffle(every)
    assert window_of(iter(every)).cut_from == found is not None


@pytest.mark.parametrize(
    ("refused", "least"),
    [
        ([], None),
        (["n", "stop"], None),
        ([CUT_FROM.format(2900)], 2900),
        (["n", CUT_FROM.format(3000), CUT_FROM.format(2900)], 2900),
    ],
)
def test_a_run_records_the_least_length(refused: list[str], least: int | None) -> None:
    """Of all sessions."""
    assert recorded_cut({"m": refused, "other": ["seed"]}) == least
