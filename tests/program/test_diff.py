"""Differences as text."""

from planc.program.diff import diff_programs, diff_resolved
from tests.program.models import another, compiled, mixture, resolved

Q = "model.layers.*.self_attn.q_proj"


def test_equal_programs_differ_in_nothing() -> None:
    one = compiled(mixture(), {"tp_size": 2})
    other = compiled(mixture(), {"tp_size": 2, "tp_plan": {Q: "colwise"}})
    assert diff_programs(one, other) == []


def test_one_layer_differs() -> None:
    old = compiled(mixture(), {"tp_size": 2})
    new = compiled(mixture(), {"tp_size": 2, "tp_plan": {"model.layers.1.self_attn.q_proj": "colwise_gather_output"}})
    assert diff_programs(old, new) == [
        f"+ transform_output {Q} axis=tp source=S(-1) target=R gradient=R size=24  [1]",
    ]


def test_layout_model_and_groups() -> None:
    old = compiled(mixture(), {"fsdp_size": 2})
    new = compiled(another(), {"fsdp_size": 2, "fsdp_plan": {"lm_head": "free_full_weight"}})
    lines = diff_programs(old, new)
    assert lines[0].startswith("- model manifest=")
    assert [line for line in lines if "manifest" not in line] == [
        "+ wrap_fsdp lm_head axes=fsdp reshard_after_forward=True",
        "+ wrap_fsdp model.norm axes=fsdp reshard_after_forward=False",
        "- wrap_fsdp model.norm+lm_head axes=fsdp reshard_after_forward=False",
    ]
    assert diff_programs(old, compiled(mixture(), {"fsdp_size": 4})) == [
        "- layout fsdp_size=2",
        "+ layout fsdp_size=4",
        "- layout efsdp_size=2",
        "+ layout efsdp_size=4",
        "- layout world_size=2",
        "+ layout world_size=4",
    ]


def test_resolved_plans() -> None:
    _, old = resolved(mixture(), {"tp_size": 2})
    _, new = resolved(mixture(), {"tp_size": 2, "tp_plan": {"model.layers.1.self_attn.q_proj": "replicate"}})
    assert diff_resolved(old, old) == []
    assert diff_resolved(old, new) == [
        f"- tp {Q}: colwise  [1]",
        f"+ tp {Q}: replicate  [1]",
        f"- tp {Q}.weight: colwise  [1]",
        f"+ tp {Q}.weight: replicate  [1]",
    ]
