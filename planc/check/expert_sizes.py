"""Which values of `ep_size` a mesh and a model allow."""

from planc.check.places import divisors
from planc.check.rule import CheckContext
from planc.layouts.layout import Layout


def mesh_sizes(layout: Layout) -> list[int]:
    """Multiples of `tp_size` that divide `fsdp_size * tp_size`."""
    return [layout.tp_size * factor for factor in divisors(layout.fsdp_size)]


def expert_counts(context: CheckContext) -> list[int]:
    """The different numbers of experts among the model's experts modules."""
    return sorted({entry.experts.num_experts for entry in context.manifest.file.modules if entry.experts})


def legal_sizes(context: CheckContext) -> list[int]:
    """The sizes of `mesh_sizes` that divide the experts of every module, 1 left out."""
    counts = expert_counts(context)
    return [n for n in mesh_sizes(context.layout) if n > 1 and all(count % n == 0 for count in counts)]


def experts_alone(layout: Layout) -> str:
    """What splits the experts over as many ranks, and runs in transformers 5.24.0."""
    if layout.pp_size > 1:
        return "leave it out: tokens can't be dispatched between pipeline stages"
    fsdp, size = layout.fsdp_size * layout.tp_size, layout.ep_size
    return (
        f"to split the experts alone: `tp_size: 1`, `fsdp_size: {fsdp}`, `ep_size: {size}`, "
        "with a batch of its own on each rank"
    )
