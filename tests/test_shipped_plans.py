"""The plans that people copy: canonical, without findings at their real sizes, and proved on a small copy."""

from pathlib import Path

import pytest

import planc
from planc.diagnostics.diagnostic import Severity
from planc.syntax.formatting import format_text
from planc.verify.outcome import Verdict

PLANS = sorted((Path(__file__).parent.parent / "plans").glob("*.yaml"))
each_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)


@each_plan
def test_is_canonical_and_says_when_to_use_it(plan: Path) -> None:
    text = plan.read_text()
    assert format_text(text, plan.name) == (text, [])
    assert text.startswith("# ")


@each_plan
def test_has_no_findings(plan: Path) -> None:
    assert [d for d in planc.check(None, plan).diagnostics if d.severity is not Severity.NOTE] == []


@each_plan
def test_is_proved(plan: Path) -> None:
    found = planc.verify(None, plan)
    # Pipeline stages aren't simulated; `tests/proof/test_pipeline.py` runs some.
    expected = Verdict.UNKNOWN if ".pp" in plan.name else Verdict.PROVED
    assert found.verdict is expected, found.diagnostics
