"""PL206."""

from collections.abc import Iterator

from planc.check.places import size_labels
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.syntax.plan import SIZE_NAMES

PROCESS_SIZES = tuple(name for name in SIZE_NAMES if name != "ep_size")


@define("PL206", "world-size-mismatch", Severity.ERROR)
class WorldSize(Rule):
    """Looks for a layout that needs another number of processes than the launcher starts.

    The mesh is `pp_size * dp_replicate_size * fsdp_size * tp_size`, and every process must have a place in it;
    transformers refuses anything else. `ep_size` adds no process.

    Example, with `--world-size 8`:

        tp_size: 4

    Use instead a mesh of eight:

        tp_size: 4
        fsdp_size: 2

    Source: `initialize_distributed_mesh`, transformers 5.24.0, `distributed/utils.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        world, layout = context.world_size, context.layout
        if world is None or world == layout.world_size:
            return
        labels = size_labels(context, *PROCESS_SIZES)
        needed = layout.world_size
        if "tp_size" not in context.plan.sizes and context.plan.tp_plan.state != "absent" and needed > 1:
            yield self._not_derived(world, needed, labels)
            return
        yield self.code.found(
            f"the layout needs {needed} process{'es' if needed > 1 else ''}, and the launcher starts {world}",
            # Without any mesh transformers builds none, and every process runs the whole model by itself.
            severity=self.code.severity if needed > 1 else Severity.WARNING,
            span=labels[0].span if labels else None,
            label=f"{' * '.join(PROCESS_SIZES)} = {needed}",
            labels=labels[1:],
            help=(self._completions(context, world),),
        )

    def _not_derived(self, world: int, others: int, labels: tuple[Label, ...]) -> Diagnostic:
        """A `tp_plan` without `tp_size` takes the processes that the other sizes leave over."""
        names = " * ".join(name for name in PROCESS_SIZES if name != "tp_size")
        return self.code.found(
            f"`tp_size` isn't given, and {world} processes can't be shared out over the other sizes",
            span=labels[0].span,
            label=f"{world} / ({names} = {others}) is not whole",
            labels=labels[1:],
            help=(f"start a multiple of {others}, or change the sizes so that they divide {world}",),
        )

    def _completions(self, context: CheckContext, world: int) -> str:
        layout = context.layout
        start = f"start {layout.world_size}"
        # FSDP and pipeline stages exclude each other, so a pipeline is completed by tp.
        names: tuple[str, ...] = ("tp_size",) if layout.pp_size > 1 else ("fsdp_size", "dp_replicate_size")
        if world < layout.world_size:
            names = tuple(name for name in PROCESS_SIZES if getattr(layout, name) > 1)
        ways = []
        for name in names:
            size, rest = divmod(getattr(layout, name) * world, layout.world_size)
            if not rest and size:
                ways.append(f"{name}={size}")
        return f"{' or '.join(ways)} makes {world}; or {start}" if ways else start
