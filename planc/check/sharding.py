"""What the resolved TP and EP plans do to each parameter and module, on each axis."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planc.layouts.layout import Axis
from planc.layouts.placement import Placement, Shard, StridedShard
from planc.model.manifest import Module, ParameterEntry
from planc.resolve.resolved import Assignment
from planc.styles.custom import ForeignStyle, WatchedStyle
from planc.styles.registry import create
from planc.styles.style import Style
from planc.styles.types import StyleType
from planc.syntax.plan import PlanKind

if TYPE_CHECKING:
    from planc.check.rule import CheckContext

MODEL_AXES: tuple[tuple[PlanKind, Axis], ...] = (("tp", "tp"), ("ep", "ep"))


@dataclass(frozen=True, slots=True)
class Sharded:
    """One parameter that a plan shards: on `axis`, on dim `dim` of `parts` equal parts, each split over the ranks."""

    name: str
    module: Module
    entry: ParameterEntry
    axis: Axis
    assignment: Assignment
    dim: int
    parts: int = 1

    @property
    def size(self) -> int:
        """The global size of the sharded dim."""
        return self.entry.shape[self.dim]


@dataclass(frozen=True, slots=True)
class Hooked:
    """One module whose forward a style hooks on `axis`."""

    module: Module
    axis: Axis
    assignment: Assignment
    style: Style
    type: StyleType


def sharded_parameters(context: "CheckContext") -> Iterator[Sharded]:
    """Every parameter that the TP or the EP plan shards, tied ones under each of their names."""
    for kind, axis in MODEL_AXES:
        for name, assignment in context.resolved.plan(kind).items():
            if assignment.is_parameter and (found := _sharded(name, axis, assignment, context)):
                yield found


def _sharded(name: str, axis: Axis, assignment: Assignment, context: "CheckContext") -> Sharded | None:
    module, entry = context.manifest.parameters[name]
    style = context.style(assignment)
    if style is None or style.parameter_objection(module, entry) is not None:
        return None
    placement = style.placement(entry)
    if not isinstance(placement, Shard | StridedShard):
        return None
    dim = placement.dim % len(entry.shape)
    parts = placement.split_factor if isinstance(placement, StridedShard) else 1
    return Sharded(name, module, entry, axis, assignment, dim, parts)


def not_known(context: "CheckContext") -> set[str]:
    """The parameters that a custom style may shard or not: nothing is known of what it does to them."""
    foreign: dict[str, bool] = {}
    found = set()
    for kind, _ in MODEL_AXES:
        for name, assignment in context.resolved.plan(kind).items():
            style = assignment.style.name
            if style not in foreign:
                foreign[style] = isinstance(create(assignment.style, kind), ForeignStyle)
            if foreign[style] and assignment.is_parameter and not isinstance(context.style(assignment), WatchedStyle):
                found.add(name)
    return found


def hooked_modules(context: "CheckContext") -> Iterator[Hooked]:
    """Every module that a known style of the TP or the EP plan stands on."""
    for kind, axis in MODEL_AXES:
        for name, assignment in context.resolved.plan(kind).items():
            if assignment.is_parameter or name not in context.manifest.modules:
                continue
            style = context.style(assignment)
            module = context.manifest.modules[name]
            if style is not None and style.objection(module) is None:
                yield Hooked(module, axis, assignment, style, style.type(module))


def is_last(placement: Placement | None) -> bool:
    """Whether a module's input or output is sharded on its last dim."""
    return isinstance(placement, Shard | StridedShard) and placement.dim == -1
