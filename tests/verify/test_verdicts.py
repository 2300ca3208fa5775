"""The cases of cases.yaml."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from planc.diagnostics.diagnostic import Diagnostic
from tests.verify.running import run

CASES = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))


def text(diagnostic: Diagnostic) -> str:
    return " ".join(
        (diagnostic.message, *diagnostic.notes, *diagnostic.help, diagnostic.key or "", *diagnostic.targets)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_verdict(case: dict[str, Any], tmp_path: Path) -> None:
    found = run(tmp_path, case["model"], case.get("plan"), case["layout"])
    assert found.verdict == case["verdict"], found.diagnostics
    assert found.ok == (case["verdict"] != "refuted")
    if "codes" in case:
        assert [d.code for d in found.diagnostics][: len(case["codes"])] == case["codes"]
    said = " ".join(map(text, found.diagnostics))
    for piece in case.get("says", ()):
        assert piece in said
    if "fix" in case:
        assert case["fix"] in said


def test_a_proof_says_what_it_rests_on(tmp_path: Path) -> None:
    found = run(tmp_path, {"model_type": "qwen3_moe"}, None, {"tp_size": 2})
    assert found.experts == ("eager", "batched_mm", "grouped_mm")
    assert found.unseen == ()
    assert found.seen > 1e3
