"""From a resolved plan to a program, in the order in which transformers 5.24.0 applies plans.

Source: `DistributedMixin.maybe_distribute_model` in `transformers/distributed/mixin.py`: pipeline stages, then tensor,
then expert parallelism, then FSDP2.
"""

from planc.model.manifest import Manifest
from planc.program.compilation import Compilation
from planc.program.errors import ProgramError
from planc.program.experts import shard_experts
from planc.program.export import carried
from planc.program.fsdp import wrap_fsdp
from planc.program.passes import DumpAfter, Pass, run
from planc.program.program import ModelIdentity, Program
from planc.program.stages import split_stages
from planc.program.tensors import shard_tensors
from planc.program.tidying import canonicalize, deduplicate
from planc.resolve.experts_alone import experts_are_alone
from planc.resolve.resolved import ResolvedPlan
from planc.syntax.plan import Plan, PlanKind

PASSES = (
    Pass("split-stages", "adds SplitStages where pp_size > 1", split_stages),
    Pass("shard-tensors", "adds the operations of the TP plan, in resolution order", shard_tensors),
    Pass("shard-experts", "adds the operations of the EP plan, where it dispatches to experts", shard_experts),
    Pass("wrap-fsdp", "adds WrapFsdp, inner modules before outer ones, the root last", wrap_fsdp),
    Pass("deduplicate", "leaves out operations that stand there already; nothing else changes", deduplicate),
    Pass("canonicalize", "orders operations as a program file lists them; the set stays the same", canonicalize),
)


def lower(plan: Plan, resolved: ResolvedPlan, manifest: Manifest, dump_after: DumpAfter | None = None) -> Program:
    """Compile `resolved`, the resolution of `plan` against `manifest`.

    `dump_after` is called with each pass's name and the program after it. Raises ProgramError with all faults: rules
    whose style can't stand where they put it, layouts that the model can't take, and unsound programs.
    """
    identity = ModelIdentity(manifest.file.name, manifest.file.class_name, manifest.hash)
    compilation = Compilation(plan, resolved, manifest)
    _refuse_sizes_without_a_plan(compilation)
    start = Program(resolved.layout, identity, plans=carried(plan, resolved))
    program = run(PASSES, start, compilation, dump_after)
    if compilation.faults:
        raise ProgramError("the plan can't be compiled for this model", tuple(compilation.faults))
    return program


def _refuse_sizes_without_a_plan(compilation: Compilation) -> None:
    """A size that no rule makes use of would be a silent no-op; transformers refuses it (`_resolve_parallel_plans`)."""
    layout = compilation.resolved.layout
    sizes: tuple[tuple[PlanKind, int], ...] = (("tp", layout.tp_size), ("ep", layout.ep_size), ("fsdp", layout.dp_size))
    for kind, size in sizes:
        if kind == "tp" and experts_are_alone(compilation.plan, compilation.resolved):
            continue
        if size > 1 and not compilation.resolved.rules.get(kind):
            name = compilation.manifest.file.class_name
            compilation.refuse(
                None, "", f"{size} ranks for {kind}, but neither `{name}` nor the plan has a {kind} rule"
            )
