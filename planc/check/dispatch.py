"""How tokens reach dispatched experts at a layout: what `auto` chooses, which tokens a rank sends, and what it costs.

Source: `AutoEP`, `AllToAllEP`, `AllReduceEP` and `MegaMoeEP`, transformers 5.24.0, `distributed/expert_parallel.py`.
planc's runtime sends the same: `tests/runtime/test_traffic.py` counts both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from planc.check.coverage import ELEMENT_BYTES
from planc.check.rule import CheckContext
from planc.check.traffic import dispatching_modules
from planc.layouts.layout import Layout
from planc.syntax.matching import generic_name

ALL_TO_ALL, ALL_REDUCE, MEGAMOE = "all_to_all", "all_reduce", "deepgemm_megamoe"


@dataclass(frozen=True, slots=True)
class Routing:
    """What a module of experts takes: rows of `features` of `element` bytes, each routed to `top_k` of `experts`."""

    experts: int
    top_k: int
    features: int
    element: int

    @property
    def row(self) -> int:
        """Bytes of one row."""
        return self.features * self.element


@dataclass(frozen=True, slots=True)
class Cost:
    """One layer's forward pass by an implementation, for each token of a TP group's batch.

    `sent` are bytes that a rank sends to others when all experts get as much; `rows` go through a rank's experts then,
    and `most_rows` when all tokens choose that rank's experts. None: it is the kernel's own affair.
    """

    messages: str
    sent: Fraction | None
    rows: Fraction | None
    most_rows: Fraction | None


def routings(context: CheckContext) -> dict[str, Routing]:
    """What the dispatched experts take, by generic name, as far as the model was watched."""
    flow = context.flow.flow
    element = 2 if _is_mixed(context) else ELEMENT_BYTES.get(context.manifest.file.dtype, 4)
    wanted = {generic_name(name): name for name in dispatching_modules(context)}
    found: dict[str, Routing] = {}
    for op in flow.operations if flow is not None else ():
        name = generic_name(flow.modules[op.module]) if flow is not None else ""
        shapes = [flow.shapes[value] for value in op.inputs] if flow is not None else []
        experts = context.manifest.modules[wanted[name]].entry.experts if name in wanted else None
        if op.name == "enter" and experts is not None and [len(shape) for shape in shapes[:2]] == [2, 2]:
            found.setdefault(name, Routing(experts.num_experts, shapes[1][1], shapes[0][1], element))
    return found


def _is_mixed(context: CheckContext) -> bool:
    option = context.plan.options.get("fsdp_mixed_precision")
    return context.is_on("fsdp") and option is not None and option.value is True


def choices(layout: Layout) -> Iterator[str]:
    """What `auto` is at this layout, and why."""
    shared = layout.ep_size == layout.tp_size
    if not shared:
        batches = layout.ep_size // layout.tp_size
        yield f"`auto` is all_to_all: an expert group holds {batches} batches, and nothing else brings tokens together"
        return
    yield (
        "`auto` in training is all_to_all: each route is computed once, where all_reduce takes every rank through the "
        "whole batch"
    )
    yield (
        f"`auto` without gradients is all_reduce: the {layout.ep_size} ranks hold one batch, no token moves, and "
        "the host reads no size, so that a CUDA graph can hold it"
    )


def kernels() -> str:
    """What runs the experts once the tokens are there. Source: `get_correct_experts_implementation`, transformers."""
    return (
        "the experts run by grouped_mm where neither the model's class nor torch is in the way, else eager; "
        "`experts_implementation` changes that"
    )


def share(layout: Layout, implementation: str) -> str | None:
    """Which tokens of its batch a rank sends to experts; None where the implementation is a custom one."""
    size = layout.ep_size if implementation == MEGAMOE else layout.tp_size
    if implementation == ALL_REDUCE:
        return "each rank takes all T tokens to its own experts"
    if implementation not in ("auto", ALL_TO_ALL, MEGAMOE):
        return None
    if size == 1:
        return "each rank sends all tokens of its own batch"
    return (
        f"the {size} ranks of a TP group share T tokens: rank r sends ceil(T/{size}) of them, from r * ceil(T/{size}) "
        "on; the last ranks send fewer or none, as for T = 1"
    )


def costs(layout: Layout, routing: Routing) -> dict[str, Cost]:
    """What each implementation that the layout allows costs."""
    ep, tp, top_k, row = layout.ep_size, layout.tp_size, routing.top_k, routing.row
    away, most = Fraction(ep - 1, ep), min(top_k, routing.experts // ep)
    sent = 2 * Fraction(top_k, tp) * row * away + Fraction(tp - 1, tp) * row
    messages = "3 all-to-alls over ep (counts, which the host reads; rows; results)"
    messages += ", 1 all-gather over tp" if tp > 1 else ""
    found = {ALL_TO_ALL: Cost(messages, sent, Fraction(top_k, tp), Fraction(ep * most, tp))}
    if ep == tp:
        every = Fraction(top_k)
        found[ALL_REDUCE] = Cost("1 all-reduce over ep", 2 * away * row, every, every)
        found[MEGAMOE] = Cost("1 kernel, which exchanges tokens, 1 all-gather over ep", None, None, None)
    return found
