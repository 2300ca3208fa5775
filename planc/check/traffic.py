"""What ranks send each other in one forward pass, and which layers' experts get their tokens from other ranks."""

from dataclasses import replace

from planc.check.coverage import parameter_shares
from planc.check.rule import CheckContext
from planc.check.sharding import Hooked
from planc.layouts.layout import Axis
from planc.layouts.placement import Partial, Placement, Replicate


def sums_and_gathers(context: CheckContext, axis: Axis) -> tuple[int, int]:
    """How many messages of activations the styles on `axis` make in a forward, and of gradients in its backward.

    Layers whose checkpoints are recomputed send those of the forward again.
    """
    hooked = [found for found in context.hooked if found.axis == axis]
    return sum(map(_forward, hooked)), sum(map(_backward, hooked))


def _forward(found: Hooked) -> int:
    type_ = found.type
    if type_.distributed:  # an embedding under DTensor's rules sums what its ranks look up
        return int(bool(found.module.parameters))
    return int(_moves(type_.input, type_.computes)) + int(_moves(type_.yields, type_.output))


def _backward(found: Hooked) -> int:
    type_ = found.type
    if type_.distributed:
        return 0
    sums = len(type_.arguments) * (type_.input == Replicate() and type_.input_gradient == Partial())
    gathers = int(type_.input == Replicate() and _moves(type_.input_gradient, type_.input) and not sums)
    of_parameters = len(found.module.parameters) * type_.sums_parameter_gradients
    return sums + gathers + of_parameters + type_.sums_output_gradient


def _moves(source: Placement | None, target: Placement | None) -> bool:
    """Whether `source` becomes `target` by a message: a part of a whole value is cut out without one."""
    return source is not None and target is not None and source not in (target, Replicate())


def dispatching_modules(context: CheckContext) -> list[str]:
    """The experts modules whose tokens are dispatched over `ep`."""
    if context.layout.ep_size == 1:
        return []
    return [found.module.name for found in context.hooked if found.axis == "ep" and found.type.dispatches]


def gathered_bytes(context: CheckContext, axis: Axis) -> int:
    """The bytes of parameters that FSDP gathers onto each rank over `axis` (`fsdp` or `efsdp`) in one forward pass."""
    alone = replace(context, layout=replace(context.layout, fsdp_size=1, dp_replicate_size=1))
    mixed = context.plan.options.get("fsdp_mixed_precision")
    width = 2 if mixed is not None and mixed.value is True else None
    experts = {f"{name}." for name in dispatching_modules(context)}
    size, found = context.layout.size(axis), 0
    for share in parameter_shares(alone):
        module, _ = context.manifest.parameters[share.name]
        if (f"{module.name}." in experts) is (axis == "efsdp"):
            element = share.whole // max(share.elements, 1)
            found += share.held * min(width or element, element) // max(element, 1)
    return found * (size - 1) // size
