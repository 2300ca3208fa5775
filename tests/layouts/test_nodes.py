"""On how many nodes groups lie, against the ranks of every group counted one by one."""

from collections import defaultdict
from itertools import product

import pytest

import planc
from planc.layouts.layout import DENSE_AXES, EXPERT_AXES, Axis, Layout
from planc.layouts.nodes import most_nodes


def counted(layout: Layout, axis: Axis, axes: tuple[Axis, ...], gpus_per_node: int) -> int:
    nodes: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for rank in range(layout.world_size):
        place = layout.coordinates(rank, axes)
        nodes[tuple(place[other] for other in axes if other != axis)].add(rank // gpus_per_node)
    return max(map(len, nodes.values()))


def layouts() -> list[Layout]:
    """Every legal layout of these sizes."""
    sizes = product((1, 2), (1, 3), (1, 2, 3, 8), (1, 2, 3, 4), (1, 2, 3, 4, 8))
    return [
        Layout(pp_size=pp, dp_replicate_size=replicas, fsdp_size=fsdp, tp_size=tp, ep_size=tp * factor)
        for pp, replicas, fsdp, tp, factor in sizes
        if fsdp % factor == 0
    ]


@pytest.mark.parametrize("gpus_per_node", [1, 2, 3, 4, 6, 8, 64])
def test_every_group_of_every_layout(gpus_per_node: int) -> None:
    for layout in layouts():
        for axes in (DENSE_AXES, EXPERT_AXES):
            for axis in axes:
                expected = counted(layout, axis, axes, gpus_per_node)
                assert most_nodes(layout, axis, gpus_per_node) == expected, (layout, axis)


def test_huge_layouts_take_no_time() -> None:
    assert most_nodes(Layout(fsdp_size=3**20, tp_size=5**9), "fsdp", 2**16) == 3**20
    assert most_nodes(Layout(fsdp_size=3**20, tp_size=7), "tp", 2**16 - 1) == 2


@pytest.mark.parametrize("gpus_per_node", [0, 65537])
def test_nodes_that_are_none(gpus_per_node: int) -> None:
    with pytest.raises(ValueError, match="65,536 GPUs"):
        planc.check("llama-3.1-8b", None, tp_size=2, gpus_per_node=gpus_per_node)


@pytest.mark.parametrize(
    ("sizes", "gpus_per_node", "warned"),
    [
        ({"tp_size": 8}, 8, None),
        ({"tp_size": 8}, 4, "warning"),
        ({"tp_size": 2, "fsdp_size": 2}, 3, "warning"),  # ranks 2 and 3 are a group on two nodes
        ({"tp_size": 2, "fsdp_size": 8}, 8, "note"),
        ({"tp_size": 2, "fsdp_size": 4, "dp_replicate_size": 2}, 8, None),
        ({"tp_size": 2, "pp_size": 8}, 2, None),
        ({"tp_size": 8}, None, None),
    ],
)
def test_what_is_said(sizes: dict[str, int], gpus_per_node: int | None, warned: str | None) -> None:
    report = planc.check("llama-3.1-8b", None, gpus_per_node=gpus_per_node, select=["PL219"], **sizes)
    assert [d.severity.value for d in report.diagnostics][:1] == ([warned] if warned else [])
