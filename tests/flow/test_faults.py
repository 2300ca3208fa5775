"""What layout types say of plans, by data."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.check.support import codes, context, report, text

CASES: list[dict[str, Any]] = YAML(typ="safe").load((Path(__file__).parent / "faults.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_plan(case: dict[str, Any]) -> None:
    plan = {**case.get("sizes", {"tp_size": 2}), "tp_plan": case.get("plan", "auto")}
    found = report(context(case["model"], plan), select=("PL3", "PL4"))
    output = text(found)
    expected = [*case.get("other", []), *case.get("codes", [])]
    assert sorted(set(codes(found, "error", "warning", "unknown"))) == expected, output
    assert bool(case.get("quiet")) != bool(expected)
    for wanted in case.get("says", []):
        assert wanted in output, f"{wanted}\n{output}"
