"""FSDP2 groups, as `apply_fully_sharded_data_parallelism` of transformers 5.24.0 forms them (`distributed/fsdp.py`)."""

from collections.abc import Iterator

from planc.ir.operations import WrapFsdp
from planc.layouts.layout import Axis, Layout
from planc.program.compilation import Compilation, provenance
from planc.program.program import Instruction, Program
from planc.resolve.resolved import Assignment
from planc.styles.expert_parallel import EpDispatchExperts
from planc.styles.fsdp import KeepFullWeight


def wrap_fsdp(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """Add the FSDP groups: experts, modules that free their weights, those that keep them, the root."""
    if program.layout.dp_size == 1:
        return program.instructions
    targets = [a for a in compilation.resolved.fsdp.values() if _stands(a, compilation)]
    keep = [a for a in targets if a.style.name == KeepFullWeight.name]
    free = [a for a in targets if a.style.name != KeepFullWeight.name]
    axes = _axes(program.layout, "fsdp")
    root = Instruction("fsdp", _group(compilation, ("",), axes, reshard=None))
    return (
        *program.instructions,
        *_experts(compilation),
        *(_single(compilation, assignment, axes, reshard=True) for assignment in free),
        *_kept(compilation, keep, axes),
        root,
    )


def _experts(compilation: Compilation) -> Iterator[Instruction]:
    """Experts are always wrapped, on their own axes; their gradient is that of `dp_size` batches.

    An EP group holds `ep / tp` batches and there are `efsdp` copies of it, in each of `dp_replicate` replicas: a sum
    over `dp_replicate * fsdp` batches, whatever the size of the FSDP group. A forced sum where the group has one rank
    would divide twice.
    """
    layout = compilation.resolved.layout
    if layout.ep_size == 1:
        return
    for assignment in compilation.resolved.ep.values():
        if assignment.is_parameter or assignment.style.name != EpDispatchExperts.name:
            continue
        operation = _group(
            compilation,
            (assignment.target,),
            _axes(layout, "efsdp"),
            reshard=True,
            divisor=layout.dp_size,
            sum_gradients=layout.efsdp_size > 1,
        )
        yield Instruction("fsdp", operation, provenance(assignment.rule))


def _kept(compilation: Compilation, keep: list[Assignment], axes: tuple[Axis, ...]) -> Iterator[Instruction]:
    """The final norm and the head in one group, where they are exactly the two kept modules."""
    if not _is_norm_and_head([a.target for a in keep], compilation):
        yield from (_single(compilation, assignment, axes, reshard=False) for assignment in keep)
        return
    modules = tuple(a.target for a in keep)
    yield Instruction("fsdp", _group(compilation, modules, axes, reshard=False), provenance(keep[-1].rule))


def _is_norm_and_head(names: list[str], compilation: Compilation) -> bool:
    """Source: `is_norm_and_head_pair`, which takes the input embedding for a head too (a tied one is)."""
    file = compilation.manifest.file
    heads = {name for name in (file.input_embeddings, file.output_embeddings) if name is not None}
    has_norm = any(name.rpartition(".")[2] == "norm" for name in names)
    return len(names) == 2 and has_norm and not heads.isdisjoint(names)


def _single(compilation: Compilation, assignment: Assignment, axes: tuple[Axis, ...], reshard: bool) -> Instruction:
    operation = _group(compilation, (assignment.target,), axes, reshard)
    return Instruction("fsdp", operation, provenance(assignment.rule))


def _group(
    compilation: Compilation,
    modules: tuple[str, ...],
    axes: tuple[Axis, ...],
    reshard: bool | None,
    divisor: int | None = None,
    sum_gradients: bool = False,
) -> WrapFsdp:
    return WrapFsdp(
        modules,
        axes,
        reshard,
        mixed_precision=_flag(compilation, "fsdp_mixed_precision"),
        cpu_offload=_flag(compilation, "fsdp_cpu_offload"),
        gradient_divisor=divisor,
        sum_gradients=sum_gradients,
    )


def _flag(compilation: Compilation, name: str) -> bool:
    option = compilation.plan.options.get(name)
    return option is not None and option.value is True


def _axes(layout: Layout, shard: Axis) -> tuple[Axis, ...]:
    return ("dp_replicate", shard) if layout.dp_replicate_size > 1 else (shard,)


def _stands(assignment: Assignment, compilation: Compilation) -> bool:
    """Whether the rule can be applied; refusals go to `compilation`."""
    style = compilation.style(assignment.rule, assignment.target)
    if style is None:
        return False
    if assignment.is_parameter:
        compilation.refuse(assignment.rule, assignment.target, "FSDP wraps modules, and this is a parameter")
        return False
    if objection := style.objection(compilation.manifest.modules[assignment.target]):
        compilation.refuse(assignment.rule, assignment.target, objection)
        return False
    return True
