"""A server that cuts prompts is known by what it counts; none that counts in its own way is suspected."""

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
BYTES_PER_WORD = {"English": 6.1, "German": 7, "Chinese": 16, "Hindi": 12, "numbers": 5}
"""Of a word, or of 16 bytes of one."""
LANGUAGES = [["English"], ["Chinese"], ["English", "Chinese"], ["English", "English", "Hindi"], list(BYTES_PER_TOKEN)]


def prompts(
    count: int, *, languages: Sequence[str] = ("English",), seed: int = 0, scale: float = 1
) -> Iterator[tuple[int, int, int]]:
    """Bytes, tokens and words of the trial request and of so many prompts like ours; scale: of the user turns."""
    dice = random.Random(seed)
    yield 8, 9, 2
    for _ in range(count):
        system, least, most = SYSTEM[dice.choice(("think", "read", "read", "conclude"))]
        user = int(dice.randint(least, most) * scale)
        language = dice.choice(languages)
        density = BYTES_PER_TOKEN[language] * dice.uniform(0.85, 1.15)
        words = user / BYTES_PER_WORD[language] * dice.uniform(0.95, 1.05)
        yield system + user, int(system / 4.6 + user / density) + 12, int(system / 6.1 + words)


def window_of(said: Iterator[tuple[int, float | None, int]]) -> PromptWindow:
    """What it makes of these bytes, counts and words."""
    window = PromptWindow()
    for size, count, words in said:
        if count and int(count):
            window.add(size, int(count), words)
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
    **{
        f"up to {step}, but the first": lambda tokens, _, step=step: (
            tokens if tokens < 10 else -(-tokens // step) * step
        )
        for step in (256, 1000, 2000)
    },
    "one digit": lambda tokens, _: float(f"{tokens:.0e}"),
    "one digit, down": lambda tokens, _: tokens // 10 ** (len(str(tokens)) - 1) * 10 ** (len(str(tokens)) - 1),
    "down to powers of two": lambda tokens, _: 1 << (tokens.bit_length() - 1),
    "two digits": lambda tokens, _: float(f"{tokens:.1e}"),
    "without the cached system turn": lambda tokens, dice: max(1, tokens - dice.choice((0, 96, 208, 208))),
    "without cached blocks": lambda tokens, dice: tokens - 16 * ((tokens - 1) // 16) if dice.random() < 0.7 else tokens,
    "nothing of what is cached": lambda tokens, dice: 0 if dice.random() < 0.5 else tokens,
    "now and then": lambda tokens, dice: tokens if dice.random() < 0.3 else None,
    "not at all": lambda *_: None,
    "always 1": lambda *_: 1,
    "always 100": lambda *_: 100,
    "always 700": lambda *_: 700,
    "the number of messages": lambda tokens, _: 1 + (tokens > 9),
    "characters": lambda tokens, _: tokens * 4,
}


@pytest.mark.parametrize("languages", LANGUAGES, ids=" ".join)
@pytest.mark.parametrize("tells", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("scale", [0.3, 1, 3])
def test_an_honest_server_is_not_suspected_in_a_thousand_requests(
    tells: Tells, languages: list[str], scale: float
) -> None:
    """However it counts, and in whatever languages; after no request of several thousand."""
    dice = random.Random(0)
    every = prompts(1000, languages=languages, scale=scale)
    window = PromptWindow()
    for number, (size, tokens, words) in enumerate(every):
        if count := int(tells(tokens, dice) or 0):
            window.add(size, count, words)
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
            found.add(int(size), 400 + own + read, int((400 + own + read) * 0.7))
            assert found.cut_from is None


@pytest.mark.parametrize("languages", LANGUAGES, ids=" ".join)
@pytest.mark.parametrize(
    ("window", "scale"), [(300, 1), (700, 1), (1000, 2), (700, 3), (2048, 3), (4096, 9), (8000, 18)]
)
def test_a_window_is_noticed_after_a_few_dozen_prompts_that_exceed_it(
    window: int, scale: float, languages: list[str]
) -> None:
    """Its least length is that of a prompt that was cut, or nearly."""
    found, cut, least = PromptWindow(), 0, math.inf
    for size, tokens, words in prompts(1000, languages=languages, scale=scale):
        if tokens > window:
            cut, least = cut + 1, min(least, size)
        found.add(size, min(tokens, window), words)
        if found.cut_from is not None:
            break
    assert cut <= 60
    assert found.cut_from is not None
    assert least / 1.06 < found.cut_from


@pytest.mark.parametrize(
    ("leaves", "scale"),
    [
        (lambda window, dice: window - dice.randint(0, window // 20), 2),
        (lambda window, dice: window - 30 * dice.randint(0, 2), 2),
        (lambda window, dice: window - dice.choice((1, 2, 3)), 3),
    ],
    ids=["up to a word", "up to a line", "up to a character"],
)
def test_a_cut_need_not_leave_the_whole_window(leaves: Callable[[int, random.Random], int], scale: float) -> None:
    """Nearly the same tokens are enough, where some prompts have 2.5 times the bytes of the window."""
    dice = random.Random(0)
    every = prompts(1000, scale=scale)
    found = window_of((size, tokens if tokens <= 700 else leaves(700, dice), 0) for size, tokens, _ in every)
    assert found.cut_from is not None


def _block_by_block(tokens: int, window: int) -> int:
    return tokens - (tokens - window // 2) // (window // 2) * (window // 2)


def _passage_by_passage(tokens: int, window: int) -> int:
    return window - (tokens * 7919) % 150


FALLING: dict[str, Callable[[int, int], int]] = {
    "half of the window": lambda _, window: window // 2,
    "half a window at a time": _block_by_block,
    "what fits of whole passages": _passage_by_passage,
    "less of longer ones": lambda tokens, window: max(window // 3, 2 * window - tokens),
}


@pytest.mark.parametrize("languages", [["English"], ["German"], ["English", "German"]], ids=" ".join)
@pytest.mark.parametrize("leaves", FALLING.values(), ids=FALLING)
@pytest.mark.parametrize(("window", "scale"), [(300, 1), (700, 1), (700, 3), (2048, 4)])
def test_counts_that_fall_are_noticed_by_the_words(
    leaves: Callable[[int, int], int], window: int, scale: float, languages: list[str]
) -> None:
    """As no honest count is below the number of words, it needs no comparison with prompts of other languages."""
    every = list(prompts(1000, languages=languages, scale=scale))
    found = window_of((size, n if n <= window else leaves(n, window), words) for size, n, words in every)
    least = min(size for size, tokens, _ in every if tokens > window)
    assert found.cut_from is not None
    assert least / 1.25 < found.cut_from < least * 1.25


@pytest.mark.parametrize("block", [1, 16, 128], ids="blocks of {}".format)
@pytest.mark.parametrize("forgets", [0, 0.1, 0.5])
def test_counts_without_what_is_cached_are_no_falling_ones(block: int, forgets: float) -> None:
    """A search asks prompts that begin alike: counts are those of their ends, far below the words."""
    for seed in range(5):
        dice, window = random.Random(seed), PromptWindow()
        for _ in range(100):
            known, tokens = 0, 0
            for step in range(dice.randrange(1, 7)):
                tokens = 280 + step * dice.randrange(60, 250)
                for draft in range(3):
                    known = 0 if dice.random() < forgets else known
                    size = int((tokens + draft) * 4.2)
                    window.add(size, max(1, tokens + draft - known // block * block), int(tokens * 0.7))
                    known = tokens
            assert window.cut_from is None


def test_an_alarm_is_withdrawn_by_longer_prompts_that_have_more_tokens() -> None:
    """Either is said once, whatever comes."""
    window, said = PromptWindow(), list[str]()

    def cut_from(*prompts: tuple[int, int]) -> int | None:
        for size, tokens in prompts:
            window.add(size, tokens, 0)
            said.extend(filter(None, [window.news()]))
        return window.cut_from

    assert cut_from((800, 203), *((size, 701) for size in range(3000, 6000, 250)))
    assert cut_from(*((size, size // 4) for size in range(6000, 9000, 250))) is None
    assert cut_from(*((size, 2249) for size in range(9000, 20000, 250)))
    assert [each.partition(":")[0][:30] for each in said] == [
        "seems to CUT PROMPTS of 2,986 ",
        "does not cut prompts of that l",
    ]


@given(st.integers(300, 700), st.randoms(use_true_random=False))
def test_the_order_of_answers_does_not_matter(window: int, dice: random.Random) -> None:
    """It is that of a network, of a session, of a rank: the least length is the same in the end."""
    every = [(size, min(tokens, window), words) for size, tokens, words in prompts(300)]
    found = window_of(iter(every)).cut_from
    dice.shuffle(every)
    assert window_of(iter(every)).cut_from == found is not None


def test_it_holds_little_whatever_comes() -> None:
    """A few hundred numbers after a hundred thousand prompts."""
    window = PromptWindow()
    for size in range(0, 10**7, 100):
        window.add(size, size // 4, size // 6)
    held = [each for each in vars(window).values() if isinstance(each, dict | set)]
    assert sum(map(len, held)) < 1000


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
