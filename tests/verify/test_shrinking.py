"""Layouts of many ranks, tried at few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planc
from planc.layouts.layout import Layout
from planc.verify.outcome import Verdict
from planc.verify.shrinking import shrunk

MOST = 8
SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, fsdp, replicas = draw(SIZES), draw(SIZES), draw(SIZES)
    ep = draw(st.sampled_from([1, *(tp * n for n in range(1, fsdp + 1) if fsdp % n == 0)]))
    stages = draw(SIZES)
    return Layout(dp_replicate_size=replicas, fsdp_size=fsdp, tp_size=tp, ep_size=ep, pp_size=stages)


@given(layouts())
def test_a_small_layout_is_legal_and_of_the_same_kind(layout: Layout) -> None:
    small = shrunk(layout, MOST)
    if small is None:
        return
    assert small.world_size <= MOST
    for name in ("dp_replicate_size", "fsdp_size", "tp_size", "ep_size", "pp_size"):
        assert getattr(layout, name) % getattr(small, name) == 0
    assert small.ep_size == 1 or (small.ep_size % small.tp_size == 0 and small.efsdp_size >= 1)
    assert [small.tp_size > 1, small.ep_size > 1, small.dp_size > 1, small.pp_size > 1] == [
        layout.tp_size > 1,
        layout.ep_size > 1,
        layout.dp_size > 1,
        layout.pp_size > 1,
    ]
    assert (small.ep_size == small.tp_size) == (layout.ep_size == layout.tp_size)


@pytest.mark.parametrize(
    "layout, small",
    [
        (Layout(tp_size=8, fsdp_size=32, ep_size=64), Layout(tp_size=2, fsdp_size=4, ep_size=4)),
        (Layout(tp_size=8, fsdp_size=4, dp_replicate_size=2), Layout(tp_size=2, fsdp_size=2, dp_replicate_size=2)),
        (Layout(tp_size=9), Layout(tp_size=3)),
        (Layout(fsdp_size=16, ep_size=16), Layout(fsdp_size=2, ep_size=2)),
        (Layout(tp_size=8, pp_size=16), Layout(tp_size=2, pp_size=2)),
        (Layout(tp_size=11), None),
    ],
)
def test_examples(layout: Layout, small: Layout | None) -> None:
    assert shrunk(layout, MOST) == small


def test_many_ranks_are_tried_at_few() -> None:
    found = planc.verify("llama", tp_size=4, fsdp_size=8)
    assert (found.verdict, found.tried_at) == (Verdict.PROVED, Layout(tp_size=2, fsdp_size=2))
    assert planc.verify("llama", tp_size=2).tried_at is None


def test_a_wrong_plan_is_refuted_there() -> None:
    plan = {"tp_size": 2, "fsdp_size": 8, "tp_plan": {"model.layers.*.mlp": "all_reduce"}}
    found = planc.verify("llama", plan)
    assert found.verdict is Verdict.REFUTED


def test_what_only_the_real_sizes_show_is_refuted_too() -> None:
    """8 KV heads divide by 2, the size that is tried, and not by 16."""
    found = planc.verify("llama-3.1-8b", tp_size=16)
    assert found.verdict is Verdict.REFUTED
    assert "PL301" in {d.code for d in found.diagnostics}
