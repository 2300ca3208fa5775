"""Every case from the field gets its verdict, for its reason, from `check` alone."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from planc.diagnostics.diagnostic import Report
from tests.check.support import codes, context, report, text

FOLDER = Path(__file__).parent.parent / "cases"
CASES: dict[str, Any] = {case["id"]: case for case in YAML(typ="safe").load((FOLDER / "cases.yaml").read_text())}
EXPECTED: dict[str, Any] = YAML(typ="safe").load((FOLDER / "expected.yaml").read_text())


def judged(case: dict[str, Any]) -> Report:
    model = case.get("model") or case["model_type"]
    plan = {**case["layout"], **case.get("plan", {})}
    return report(context(model, plan, config=case.get("config"), world_size=case.get("world_size")))


def test_every_case_has_its_expectation() -> None:
    assert CASES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case, expected = CASES[name], EXPECTED[name]
    found = judged(case)
    output = text(found)
    for wanted in expected["says"]:
        assert any(word in output for word in ([wanted] if isinstance(wanted, str) else wanted)), f"{wanted}\n{output}"
    assert found.ok == (case["verdict"] != "error"), output
    given = set(codes(found, "error" if case["verdict"] == "ok" else case["verdict"]))
    of_layout_types = {code for code in given if code.startswith("PL4")}
    assert given - of_layout_types <= set(expected["codes"]) <= given, output
