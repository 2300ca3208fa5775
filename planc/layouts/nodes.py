"""On how many nodes the groups of an axis lie, where launchers number ranks node by node."""

from planc.layouts.layout import DENSE_AXES, EXPERT_AXES, Axis, Layout

# More GPUs a node has none, and so many residues are gone through.
MOST_GPUS = 1 << 16


def stride(layout: Layout, axis: Axis) -> int:
    """How far apart neighbours of a group of `axis` are, in ranks: the product of the faster axes' sizes."""
    axes = DENSE_AXES if axis in DENSE_AXES else EXPERT_AXES
    found = 1
    for faster in axes[axes.index(axis) + 1 :]:
        found *= layout.size(faster)
    return found


def most_nodes(layout: Layout, axis: Axis, gpus_per_node: int) -> int:
    """The most nodes of `gpus_per_node` ranks (1 to `MOST_GPUS`) that a group of `axis` lies on.

    The layout must be legal.
    """
    size, step = layout.size(axis), stride(layout, axis)
    if size == 1:
        return 1
    if step >= gpus_per_node:
        return size
    reach = (size - 1) * step
    # The first ranks of groups come in runs of `step`, a run every `size * step` ranks; the later a group begins on
    # its node, the more nodes it reaches. Runs repeat their place on a node after at most `gpus_per_node` of them.
    runs = min(layout.world_size // (size * step), gpus_per_node)
    starts = (run * size * step % gpus_per_node for run in range(runs))
    return max((min(start + step, gpus_per_node) - 1 + reach) // gpus_per_node + 1 for start in starts)
