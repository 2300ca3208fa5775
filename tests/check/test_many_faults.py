"""Plans of thousands of faults: the first are explained, all are counted. `benchmarks/many_faults.py` times them."""

from collections import Counter
from pathlib import Path

import pytest

import planc
from benchmarks.many_faults import PLANS, write

# By code how many findings there are, and what the last one counts.
EXPECTED: dict[str, tuple[dict[str, int], str]] = {
    "dead rules": ({"PL101": 1}, "4900 rules match nothing"),
    "unknown styles": ({"PL101": 1, "PL106": 31}, "4,870 more rules name no style"),
    "a long style": ({"PL106": 1}, "is no style"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_many_faults(kind: str, tmp_path: Path) -> None:
    codes, counted = EXPECTED[kind]
    found = planc.check(None, write(kind, tmp_path)).diagnostics
    assert Counter(d.code for d in found) == codes
    assert counted in found[-1].message
