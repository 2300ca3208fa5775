"""PL219."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planc.check.coverage import coverage
from planc.check.dispatch import ALL_TO_ALL, costs, routings
from planc.check.places import counted, divisors, listed, size_span
from planc.check.rule import CheckContext, Rule
from planc.check.traffic import dispatching_modules, gathered_bytes, sums_and_gathers
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.units import gigabytes
from planc.layouts.layout import Axis, Layout
from planc.layouts.nodes import most_nodes, stride
from planc.resolve.resolver import resolve
from planc.syntax.matching import generic_name


@define("PL219", "group-across-nodes", Severity.NOTE)
class GroupAcrossNodes(Rule):
    """Looks for groups of ranks that lie on several nodes, where `--gpus-per-node` says how large a node is.

    Links between nodes are many times slower than those inside. The ranks of a TP group wait for each other several
    times in every layer, so one that crosses nodes is a warning. Experts' tokens and FSDP's gathers may have to cross,
    for want of memory: a note says how much does. Pipeline stages and replicas (`dp_replicate_size`) are made to cross,
    and nothing is said of them.

    Example, on nodes of 8 GPUs:

        tp_size: 16

    Use instead, on the same 16 GPUs:

        tp_size: 8
        fsdp_size: 2

    Source: `TransformersDeviceMesh`, transformers 5.24.0: the last axis of a mesh is the fastest, and launchers number
    ranks node by node. The documents of transformers advise `dp_replicate_size` of the number of nodes for FSDP.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.gpus_per_node is None or not _is_legal(context.layout):
            return
        on = _Nodes(context, context.gpus_per_node)
        layout, modules = context.layout, dispatching_modules(context)
        if on.cross("tp"):
            yield self._tensor_parallel(on)
        # An expert group of the size of a TP group is that group.
        if on.cross("ep") and layout.ep_size > layout.tp_size and modules:
            yield self._experts(on, modules)
        axes: tuple[Axis, ...] = ("fsdp", "efsdp") if modules else ("fsdp",)
        if crossing := [axis for axis in axes if on.cross(axis)]:
            yield self._fsdp(on, crossing)

    def _tensor_parallel(self, on: "_Nodes") -> Diagnostic:
        forward, backward = sums_and_gathers(on.context, "tp")
        legal = divisors(on.gpus, on.context.layout.tp_size - 1)
        return self.code.found(
            on.lie("tp"),
            severity=Severity.WARNING,
            span=size_span(on.context, "tp_size", "tp_plan"),
            label=f"{forward} sums and gathers leave the node in a forward pass, {backward} in its backward",
            notes=(on.example("tp"),),
            help=(f"tp_size of {listed(legal)} keeps each group on a node; other axes can take the rest of the ranks",),
        )

    def _experts(self, on: "_Nodes", modules: list[str]) -> Diagnostic:
        notes = [on.example("ep")]
        known = routings(on.context)
        if all(name in known for name in map(generic_name, modules)):
            each = [costs(on.context.layout, known[generic_name(name)])[ALL_TO_ALL].sent or 0 for name in modules]
            sent = gigabytes(float(sum(each)))
            notes.append(f"by all_to_all a rank sends {sent} for each token of its batch in a forward pass")
        return self.code.found(
            on.lie("ep"),
            span=size_span(on.context, "ep_size"),
            label=f"the tokens of {counted(len(modules), 'experts module')} go to other nodes and back",
            notes=tuple(notes),
        )

    def _fsdp(self, on: "_Nodes", axes: list[Axis]) -> Diagnostic:
        gathered = gigabytes(sum(gathered_bytes(on.context, axis) for axis in axes))
        return self.code.found(
            "; ".join(map(on.lie, axes)),
            span=size_span(on.context, "fsdp_size"),
            label=f"each rank gathers {gathered} of parameters in a forward pass, and in its backward what was freed",
            notes=tuple(map(on.example, axes)),
            help=tuple(_replicas(on)),
        )


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The groups of a layout on nodes of `gpus` ranks."""

    context: CheckContext
    gpus: int

    def cross(self, axis: Axis) -> bool:
        return most_nodes(self.context.layout, axis, self.gpus) > 1

    def lie(self, axis: Axis) -> str:
        layout = self.context.layout
        nodes = f"{most_nodes(layout, axis, self.gpus):,} nodes of {counted(self.gpus, 'GPU')}"
        return f"`{axis}` groups of {layout.size(axis):,} ranks lie on {nodes}"

    def example(self, axis: Axis) -> str:
        """The group that rank 0 is in: the others lie alike."""
        size, step = self.context.layout.size(axis), stride(self.context.layout, axis)
        ranks = listed(range(0, size * step, step)) if size <= 12 else f"0, {step}, {2 * step}, …, {(size - 1) * step}"
        return f"ranks {f'0-{size - 1}' if step == 1 else ranks} are a group of `{axis}`"


def _is_legal(layout: Layout) -> bool:
    sizes = (layout.pp_size, layout.dp_replicate_size, layout.fsdp_size, layout.tp_size, layout.ep_size)
    return min(sizes) >= 1 and layout.fsdp_size * layout.tp_size % layout.ep_size == 0


def _replicas(on: _Nodes) -> Iterator[str]:
    """The advice of the documents: replicas between nodes, where the rest of the layout fits on one."""
    layout, context = on.context.layout, on.context
    fsdp = on.gpus // layout.tp_size
    fits = layout.pp_size == 1 and fsdp > 1 and on.gpus == fsdp * layout.tp_size and on.gpus % layout.ep_size == 0
    if not fits or layout.fsdp_size % fsdp:
        return
    replicas = layout.dp_replicate_size * layout.fsdp_size // fsdp
    other = replace(layout, dp_replicate_size=replicas, fsdp_size=fsdp)
    resolved = resolve(context.plan, context.manifest, other)
    held = coverage(replace(context, layout=other, resolved=resolved)).bytes_per_rank
    yield (
        f"dp_replicate_size={replicas} with fsdp_size={fsdp} gathers inside a node, and only sums of gradients cross; "
        f"a rank then holds {gigabytes(held)} of parameters instead of {gigabytes(coverage(context).bytes_per_rank)}"
    )
