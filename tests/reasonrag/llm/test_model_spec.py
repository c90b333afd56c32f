"""A model as a record: what stands beside another one, and what opens it."""

from __future__ import annotations

import pytest

from reasonrag.errors import InputError
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.llm.settings import ModelSettings

TEACHER = ModelSpec(
    "gpt-4o",
    Sampling(temperature=1.0, top_p=1.0, max_tokens=512),
    Limits(32, timeout=300.0, rpm=100, tpm=1000),
    price=SELF_HOSTED,
    addresses=("http://127.0.0.1:9/v1",),
)


def test_a_model_at_addresses_of_its_own_has_neither_the_key_nor_the_rates_of_the_other() -> None:
    own = TEACHER.second(
        ModelSettings(base_url=["http://127.0.0.1:8/v1"]), "j", name_flag="--j", key_variable="OWN_KEY"
    )
    assert (own.addresses, own.key_variable) == (("http://127.0.0.1:8/v1",), "OWN_KEY")
    assert own.limits == Limits(32, timeout=300.0)


def test_a_model_without_a_price_is_told_and_a_cap_in_dollars_needs_one() -> None:
    """Before the run, in one line, with the flag that helps; and a price of no model here is told, too."""
    mystery = ModelSpec("mystery", TEACHER.sampling, TEACHER.limits)
    said: list[str] = []
    check_prices(said.append, TEACHER, None, mystery, given=["gpt-4=1,2", "gpt-4o=1,2"], capped=False)
    [unused, line] = said
    assert unused == "--price gpt-4: no model here is called that, so this price is not used"
    assert line.startswith("no price is known for mystery, so costs are not shown and --max-cost cannot be used")
    assert "give --price mystery=IN,OUT, in dollars per million tokens (0,0 for a server of your own)" in line
    with pytest.raises(InputError, match=r"the price of mystery.*give --price mystery=IN,OUT"):
        check_prices(said.append, TEACHER, mystery, capped=True)
    check_prices(said.append, TEACHER, TEACHER, None, capped=True)
    assert len(said) == 2
