"""Layer numbers as ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planc.model import ranges

numbers = st.integers(1, 3).flatmap(lambda width: st.sets(st.tuples(*[st.integers(0, 9)] * width), min_size=1))


@given(numbers)
def test_ranges_stand_for_exactly_their_numbers(numbers: set[tuple[int, ...]]) -> None:
    items = [ranges.parse(item) for item in ranges.compress(numbers)]
    expanded = [n for item in items for n in ranges.expand(item)]
    assert set(expanded) == numbers
    assert len(expanded) == len(numbers) == sum(map(ranges.count, items))


def test_full_products_are_one_item() -> None:
    assert ranges.compress((layer, expert) for layer in range(3, 61) for expert in range(256)) == ("3-60;0-255",)


@pytest.mark.parametrize("item", ["", "x", "3-", "-3", "5-3", "1;", "1,2", "0-9999999999", "٣", "1.5", "0x1"])
def test_what_is_no_range(item: str) -> None:
    with pytest.raises(ValueError):
        ranges.parse(item)
