"""Which layouts of a number of ranks a model takes, as the checker's own rules judge them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from planc.check.checker import run
from planc.check.coverage import coverage
from planc.check.expert_sizes import expert_counts, mesh_sizes
from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.span import COMMAND_LINE, Span
from planc.layouts.candidates import dense_meshes
from planc.layouts.layout import Layout
from planc.resolve.resolver import resolve
from planc.syntax.plan import SIZE_NAMES, Spanned

# Rules about sizes: quick, and enough to refuse most layouts.
SIZES = ("PL2",)


@dataclass(frozen=True, slots=True)
class LegalLayout:
    """A layout without errors: bytes of parameters on the fullest rank, and the codes of what is warned of."""

    layout: Layout
    bytes_per_rank: int
    warnings: tuple[str, ...]


def legal_layouts(
    context: CheckContext, layouts: Iterable[Layout], begin: Callable[[str], object]
) -> list[LegalLayout]:
    """Those of `layouts` that the plan of `context` has no errors at, the lightest ones first.

    `begin` is called with the sizes of each layout before it is judged.
    """
    found: list[LegalLayout] = []
    for layout in layouts:
        begin(", ".join(f"{name}={size}" for name in SIZE_NAMES if (size := getattr(layout, name)) > 1))
        if judged := _judge(context, layout):
            found.append(judged)
    return sorted(found, key=lambda legal: (legal.bytes_per_rank, legal.layout.tp_size, legal.layout.ep_size))


def candidates(context: CheckContext, world_size: int, fixed: Mapping[str, int]) -> Iterator[Layout]:
    """The layouts of `world_size` ranks whose meshes the rules about sizes don't refuse; `fixed` sizes stay."""
    has_experts = bool(expert_counts(context))
    for dense in dense_meshes(world_size):
        if any(getattr(dense, name) != size for name, size in fixed.items() if name != "ep_size"):
            continue
        dense = replace(dense, ep_implementation=context.layout.ep_implementation)
        # Expert parallelism adds no rank: a mesh that is refused without it is refused with it.
        if _errors(run(at_layout(context, dense), SIZES)):
            continue
        sizes = [1, *(size for size in mesh_sizes(dense) if size > 1 and has_experts)]
        yield from (replace(dense, ep_size=size) for size in sizes if fixed.get("ep_size", size) == size)


def _judge(context: CheckContext, layout: Layout) -> LegalLayout | None:
    context = at_layout(context, layout)
    if _errors(run(context, SIZES)):
        return None
    found = run(context)
    if _errors(found):
        return None
    warnings = sorted({d.code for d in found if d.severity is Severity.WARNING})
    return LegalLayout(layout, coverage(context).bytes_per_rank, tuple(warnings))


def at_layout(context: CheckContext, layout: Layout) -> CheckContext:
    """The same plan and model at another layout."""
    span = Span(COMMAND_LINE, 1, 1, 1, 1)
    sizes = {name: Spanned(int(getattr(layout, name)), span) for name in SIZE_NAMES}
    plan = replace(context.plan, sizes=sizes)
    resolved = resolve(plan, context.manifest, layout)
    nodes = context.gpus_per_node
    return CheckContext(plan, context.manifest, layout, resolved, layout.world_size, gpus_per_node=nodes)


def _errors(found: list[Diagnostic]) -> bool:
    return any(diagnostic.severity is Severity.ERROR for diagnostic in found)
