"""Models that change in place what a style hands on: check, verify, planc's runtime and transformers' say the same.

Llama 4 adds its routed experts' output to that of the shared expert, Falcon that of attention to that of the MLP.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import planc
from planc.layouts.layout import Layout
from planc.runtime.mesh import build_meshes
from planc.verify.outcome import Verdict
from tests.proof.cases import Case, layout
from tests.proof.models import CHANGING, batches, build
from tests.proof.on_ranks import error, fresh, one_process_logits, transformers_applies
from tests.proof.one_process import step
from tests.proof.test_layouts import TOLERANCE, proved
from tests.runtime.ranks import run_ranks

CASES = tuple(Case(model, layout("tp2")) for model in CHANGING)


def plan(case: Case) -> dict[str, Any]:
    return {"tp_size": 2, **({"tp_plan": case.tp_plan} if case.tp_plan else {})}


@pytest.mark.ranks
def test_they_infer_and_train_as_one_process() -> None:
    """With the shards that transformers makes."""
    assert proved(CASES, 2) == {}


def by_transformers() -> dict[str, tuple[float, str]]:
    """How far transformers' inference is off, and what its training ends with."""
    meshes = build_meshes(Layout(tp_size=2))
    found = {}
    for case in CASES:
        (ids,) = batches(1)
        expected = one_process_logits(case, ids)
        model = fresh(case)
        transformers_applies(model, case, meshes)
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits
        with pytest.raises(RuntimeError) as refusal:
            step(model, [ids])
        found[str(case)] = error(logits, expected), str(refusal.value)
    return found


@pytest.mark.ranks
def test_transformers_infers_and_does_not_train() -> None:
    for found in run_ranks(2, by_transformers):
        assert found.keys() == {str(case) for case in CASES}
        for off, refusal in found.values():
            assert off < TOLERANCE
            assert "is a view and is being modified inplace" in refusal


@pytest.mark.parametrize("case", CASES, ids=str)
def test_check_and_verify_agree(case: Case, tmp_path: Path) -> None:
    build(case.model).config.save_pretrained(tmp_path)
    report = planc.check(tmp_path, plan(case))
    assert report.ok and [d.severity.value for d in report.diagnostics if d.code == "PL415"] == ["note"]
    found = planc.verify(tmp_path, plan(case))
    assert found.verdict is Verdict.PROVED
    assert [(d.code, d.severity.value) for d in found.diagnostics] == [("PL415", "note")]
    theirs = planc.check(tmp_path, plan(case), target="trainer")
    assert [d.code for d in theirs.diagnostics if d.severity.value == "error"] == ["PL415"]
    refuted = planc.verify(tmp_path, {**plan(case), "target": "trainer"})
    assert refuted.verdict is Verdict.REFUTED and [d.code for d in refuted.report.diagnostics] == ["PL415"]
    with pytest.raises(planc.PlanError, match="PL415"):
        planc.distributed_config(plan(case), tmp_path)
    assert planc.distributed_config(plan(case), tmp_path, training=False).tp_size == 2
