"""Plans with pipeline stages: inference is tried, on copies that have a layer for each stage."""

from dataclasses import replace

import pytest

import planc
from planc.analysis import Given, Settings, analyse
from planc.ir.operations import SplitStages
from planc.layouts.layout import Layout
from planc.program.program import Program
from planc.verify.applying import ByProgram
from planc.verify.case import Case
from planc.verify.outcome import Verdict
from planc.verify.reference import reference
from planc.verify.trial import Laboratory, Trial

PLAN = {"model": "llama-3.1-70b", "tp_size": 2, "pp_size": 3}


def test_right_stages_are_proved_for_inference() -> None:
    found = planc.verify(None, PLAN)
    assert found.verdict is Verdict.PROVED and found.inference_only
    assert found.reloaded == ("transformers", "planc")


def test_many_stages_are_tried_with_few() -> None:
    found = planc.verify(None, {"model": "qwen3", "tp_size": 8, "pp_size": 16})
    assert (found.verdict, found.tried_at) == (Verdict.PROVED, Layout(tp_size=2, pp_size=2))


@pytest.mark.parametrize(
    ("style", "code"), [({"lm_head": "colwise"}, "PL701"), ({"model.layers.*.mlp.down_proj": "colwise"}, "PL703")]
)
def test_a_wrong_rule_is_refuted(style: dict[str, str], code: str) -> None:
    found = planc.verify(None, {**PLAN, "tp_plan": style})
    assert found.verdict is Verdict.REFUTED
    assert [d.code for d in found.diagnostics] == [code] and found.diagnostics[0].key == next(iter(style))


def trial(ranges: tuple[tuple[int, int], ...] | None = None) -> Trial:
    """Two stages of a copy of two layers, or those of `ranges`."""
    analysis = analyse({"model": "llama-3.1-70b", "pp_size": 2}, Given(), Settings())
    assert analysis.context is not None
    plan, context = analysis.context.plan, analysis.context
    case = Case.make(plan, context.resolved, context.manifest)
    program = case.program(plan)
    if ranges is not None:
        program = Program(
            program.layout,
            program.model,
            tuple(
                replace(i, operation=replace(i.operation, ranges=ranges)) if isinstance(i.operation, SplitStages) else i
                for i in program.instructions
            ),
        )
    whole = reference(case.copy.model, [case.copy.batch], 1)
    laboratory = Laboratory(case.copy.model, whole, case.layout)
    try:
        return laboratory.trial(ByProgram(program))
    finally:
        laboratory.close()


def test_a_layer_that_no_stage_has_is_a_departure() -> None:
    assert trial().agrees
    lost = trial(((0, 1), (2, 2)))
    assert {d.part for d in lost.departures} == {"weights", "inference"}
    assert all(d.name.startswith("model.layers.1.") for d in lost.departures if d.part == "weights")


def test_a_layer_that_two_stages_have_is_a_departure() -> None:
    assert {d.part for d in trial(((0, 2), (1, 2))).departures} == {"inference"}
