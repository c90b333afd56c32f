"""Beginnings that prompts share: which are worth keeping."""

from hypothesis import example, given
from hypothesis import strategies as st

from reasonrag.llm.servers.heads import MOST_TOKENS, SHARED_BY, SHORTEST, Heads

SYSTEM = tuple(range(1000, 1000 + 2 * SHORTEST))
TREE = tuple(range(3000, 3000 + SHORTEST))


def after(*prompts: tuple[int, ...]) -> Heads[str]:
    heads: Heads[str] = Heads()
    for each in prompts:
        heads.remember(each)
    return heads


def test_a_beginning_is_worth_keeping_once_enough_prompts_have_it() -> None:
    prompts = [(*SYSTEM, question) for question in range(SHARED_BY)]
    assert after(*prompts[:-1]).shared(prompts[0]) == 0
    assert after(*prompts).shared(prompts[0]) == len(SYSTEM)


def test_the_same_prompt_again_is_no_other_prompt() -> None:
    assert after(*[(*SYSTEM, 1)] * 9).shared((*SYSTEM, 1)) == 0


def test_a_short_beginning_is_not_worth_it() -> None:
    short = SYSTEM[: SHORTEST - 1]
    assert after(*[(*short, question) for question in range(9)]).shared((*short, 1)) == 0


def test_a_kept_beginning_serves_prompts_that_share_nothing_else() -> None:
    heads = after()
    heads.keep(SYSTEM, "system")
    assert heads.shared((*SYSTEM, 7)) == heads.longest((*SYSTEM, 7)) == len(SYSTEM)
    assert heads.get(SYSTEM) == "system"
    assert heads.shared((*SYSTEM[1:], 7)) == 0


def test_a_longer_beginning_is_kept_beside_it_only_if_it_is_much_longer() -> None:
    """The first words that some questions have in common are not worth a beginning of their own."""
    heads = after(*[(*SYSTEM, 5, 6, question) for question in range(9)])
    heads.keep(SYSTEM, "system")
    assert heads.shared((*SYSTEM, 5, 6, 1)) == len(SYSTEM)
    for each in range(9):
        heads.remember((*SYSTEM, *TREE, each))
    assert heads.shared((*SYSTEM, *TREE, 1)) == len(SYSTEM) + len(TREE)


def test_what_was_unused_for_longest_goes_first() -> None:
    heads = after()
    third = MOST_TOKENS // 3
    first, second, last = ((number,) * third for number in (1, 2, 3))
    for each in (first, second, last):
        heads.keep(each, str(each[0]))
    assert heads.get(first) == "1"
    heads.keep((4,) * third, "4")
    assert [heads.get(each) for each in (first, second, last)] == ["1", None, "3"]


LONG = tuple(range(3 * SHORTEST))
PROMPTS = st.builds(
    lambda shared, own: (*LONG[:shared], *own), st.integers(1, len(LONG)), st.lists(st.integers(0, 1), max_size=2)
)


@given(st.lists(PROMPTS, min_size=SHARED_BY, max_size=12))
@example([LONG[:length] for length in range(len(LONG) - SHARED_BY, len(LONG) + 1)])
def test_something_of_every_prompt_is_left_to_read(prompts: list[tuple[int, ...]]) -> None:
    """The model is asked for the token after a prompt's last one, so that one is always read."""
    heads = after(*prompts)
    for each in prompts:
        shared = heads.shared(each)
        assert shared == 0 or SHORTEST <= shared < len(each)
        assert sum(other[:shared] == each[:shared] for other in set(prompts)) >= (SHARED_BY if shared else 0)
