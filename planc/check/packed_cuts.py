"""Where a plan cuts a fused weight, and whether each rank gets its block of every part."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from planc.check.rule import CheckContext
from planc.check.sharding import Sharded, is_last
from planc.layouts.placement import Replicate
from planc.model.manifest import Packing
from planc.styles.registry import create
from planc.syntax.plan import PlanRule


@dataclass(frozen=True, slots=True)
class PackedCut:
    """Parameters of one rule, packed alike, cut on the packed dim into `parts` parts."""

    rule: PlanRule
    packing: Packing
    parts: int
    width: int
    targets: tuple[str, ...]
    by_module: bool
    has_heads: bool


def packed_cuts(context: CheckContext) -> Iterator[PackedCut]:
    """Every shard of a packed dim whose output isn't gathered again."""
    groups: dict[tuple[PlanRule, Packing, int, int, bool, bool], list[str]] = defaultdict(list)
    for found in context.sharded:
        packing = found.entry.packing
        if packing is None or packing.dim % len(found.entry.shape) != found.dim or _is_gathered(found, context):
            continue
        key = (
            found.assignment.rule,
            packing,
            found.parts,
            found.size,
            found.assignment.by_module,
            found.module.entry.heads is not None,
        )
        groups[key].append(found.name)
    for (rule, packing, parts, width, by_module, has_heads), targets in groups.items():
        yield PackedCut(rule, packing, parts, width, tuple(targets), by_module, has_heads)


def _is_gathered(found: Sharded, context: CheckContext) -> bool:
    """Whether the module's blocks are put together again in their order, so that any cut will do."""
    hook = context.resolved.plan(found.assignment.rule.plan).get(found.module.name)
    style = create(hook.style, hook.rule.plan) if hook else None
    if style is None or found.parts != 1:
        return False
    style_type = style.type(found.module)
    return isinstance(style_type.output, Replicate) and is_last(style_type.yields)
