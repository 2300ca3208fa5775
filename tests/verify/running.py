"""Verify a plan from Python, as `planc verify` does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planc.analysis import PlanLike, Settings, analyse
from planc.api import arguments
from planc.verify.outcome import VerifyReport
from planc.verify.session import verify
from planc.verify.trial import RankKind


def run(
    folder: Path, model: Mapping[str, Any], plan: PlanLike, layout: Mapping[str, int], ranks: RankKind = "threads"
) -> VerifyReport:
    """The verdict on `plan` for the model with these config fields."""
    (folder / "config.json").write_text(json.dumps(model))
    analysis = analyse(plan, arguments("verify", folder / "config.json", None, layout), Settings(cache=False))
    assert analysis.context is not None, analysis.report.diagnostics
    return verify(analysis.context, analysis.report, ranks=ranks)
