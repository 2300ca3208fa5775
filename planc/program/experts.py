"""Expert parallelism."""

from planc.program.compilation import Compilation
from planc.program.program import Instruction, Program
from planc.program.tensors import lower_assignments
from planc.styles import registry
from planc.styles.expert_parallel import EpDispatchExperts


def shard_experts(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """Add the EP plan's operations on axis `ep`.

    As in transformers 5.24.0 (`maybe_distribute_model`), an EP plan in which no rule dispatches to experts is not
    applied at all.
    """
    layout = program.layout
    assignments = tuple(compilation.resolved.ep.values())
    if layout.ep_size == 1 or not any(a.style.name == EpDispatchExperts.name for a in assignments):
        return program.instructions
    if fault := _implementation_fault(layout.ep_implementation, layout.ep_size == layout.tp_size):
        compilation.refuse(None, "", fault)
    return (*program.instructions, *lower_assignments(assignments, "ep", "ep", compilation))


def _implementation_fault(name: str, shares_batch: bool) -> str | None:
    if name not in registry.EP_IMPLEMENTATIONS and not registry.is_custom_ep_implementation(name):
        known = ", ".join(f"`{n}`" for n in registry.ep_implementation_names())
        return f"`ep_implementation: {name}` names no implementation (there are {known})"
    if not shares_batch and registry.needs_shared_batch(name):
        return f"`ep_implementation: {name}` needs every rank of an expert group to hold one batch (ep_size == tp_size)"
    return None
