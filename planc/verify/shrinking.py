"""A layout of few ranks in the place of one of many."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from planc.layouts.layout import Layout


def shrunk(layout: Layout, most: int) -> Layout | None:
    """A layout of at most `most` ranks that stands for `layout`; None where there is none.

    Each size is a divisor of the size it stands for, so that what divides evenly still does, and an axis of several
    ranks keeps several where that fits. Above all TP, FSDP, EP and stages stay what they are, and how EP groups lie to
    TP groups; then replicas, and several copies of the experts. Of those that keep as much, the smallest.
    """
    return max(_candidates(layout, most), key=lambda small: (_kept(layout, small), -small.world_size), default=None)


def _candidates(layout: Layout, most: int) -> Iterator[Layout]:
    sizes = [[n for n in range(1, most + 1) if size % n == 0] for size in _sizes(layout)]
    for replicas, fsdp, tp, ep, pp in product(*sizes):
        small = replace(layout, dp_replicate_size=replicas, fsdp_size=fsdp, tp_size=tp, ep_size=ep, pp_size=pp)
        is_legal = ep == 1 or (ep % tp == 0 and (fsdp * tp) % ep == 0)
        if is_legal and small.world_size <= most and _essentials(small) == _essentials(layout):
            yield small


def _sizes(layout: Layout) -> tuple[int, ...]:
    return layout.dp_replicate_size, layout.fsdp_size, layout.tp_size, layout.ep_size, layout.pp_size


def _essentials(layout: Layout) -> tuple[bool, ...]:
    """What must not change: which plans are applied, and whether an EP group is a TP group."""
    applied = (layout.tp_size > 1, layout.dp_size > 1, layout.ep_size > 1, layout.pp_size > 1)
    return *applied, layout.ep_size == layout.tp_size


def _kept(layout: Layout, small: Layout) -> int:
    """How many of the other traits of `layout` the small one has."""
    traits = [
        (each.fsdp_size > 1, each.dp_replicate_size > 1, each.efsdp_size > 1 and each.ep_size > 1)
        for each in (layout, small)
    ]
    return sum(before == after for before, after in zip(*traits, strict=True))
