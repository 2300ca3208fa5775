"""The plans that people copy: canonical, without findings at their real sizes, and proved on a small copy.

On threads; with `PLANC_SWEEP=1` on gloo ranks, which `tests/proof` runs the layouts on every time.
"""

import os
from pathlib import Path

import pytest

import planc
from planc.analysis import Given, Settings, analyse
from planc.diagnostics.diagnostic import Severity
from planc.syntax.formatting import format_text
from planc.verify.outcome import Verdict
from planc.verify.session import verify

FOLDER = Path(__file__).parent.parent / "plans"
PLANS = sorted(FOLDER.glob("*.yaml"))
# They name what a module registers: `tests/cli/test_extending_page.py` checks and verifies them beside it.
OF_YOUR_OWN = sorted((FOLDER / "custom").glob("*.yaml"))
each_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)


@pytest.mark.parametrize("plan", [*PLANS, *OF_YOUR_OWN], ids=lambda plan: plan.stem)
def test_is_canonical_and_says_when_to_use_it(plan: Path) -> None:
    text = plan.read_text()
    assert format_text(text, plan.name) == (text, [])
    assert text.startswith("# ")


@each_plan
def test_has_no_findings(plan: Path) -> None:
    assert [d for d in planc.check(None, plan).diagnostics if d.severity is not Severity.NOTE] == []


@each_plan
def test_is_proved(plan: Path) -> None:
    analysis = analyse(plan, Given(), Settings())
    assert analysis.context is not None
    found = verify(analysis.context, analysis.report, ranks="gloo" if os.environ.get("PLANC_SWEEP") else "threads")
    assert found.verdict is Verdict.PROVED, found.diagnostics
    assert found.inference_only == (".pp" in plan.name)
