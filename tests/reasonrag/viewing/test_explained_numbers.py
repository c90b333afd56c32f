"""How numbers are written in the sentences about a pair: rounding never says what is not so."""

from __future__ import annotations

import pytest

from reasonrag.viewing.explanations import number


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "unknown"),
        (0.0, "0.00"),
        (0.0049, "0.0049"),
        (0.694, "0.69"),
        (-0.5, "-0.50"),
        (0.9962, "0.996"),
        (0.99998, "0.99998"),
        (1.0 - 1e-12, "1.00"),
        (1.0, "1.00"),
    ],
)
def test_a_number_has_two_digits_or_as_many_as_tell_it_from_nothing_and_from_certainty(
    value: float | None, written: str
) -> None:
    """A chance of .9962 is not written as certainty, a margin of .0049 not as none; what floats add is left out."""
    assert number(value) == written
