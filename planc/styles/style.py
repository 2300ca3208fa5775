"""What a style is: one class each, declared here, registered in `planc.styles.registry`."""

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from planc.ir.operations import Operation
from planc.layouts.layout import Axis, Layout
from planc.layouts.placement import Placement
from planc.model.manifest import Manifest, Module, ParameterEntry
from planc.syntax.plan import PlanKind


@dataclass(frozen=True, slots=True)
class Lowering:
    """What lowering may look at."""

    manifest: Manifest
    layout: Layout
    axis: Axis


class Style(ABC):
    """A named way to shard parameters and to transform what goes in and out of a module.

    `arguments` are the legal arguments with their default values (`{"split_factor": 2}`); an instance is one use.
    Behaviour follows transformers 5.24.0, `distributed/tensor_parallel.py` and `distributed/expert_parallel.py`.
    """

    name: ClassVar[str]
    plans: ClassVar[frozenset[PlanKind]]
    arguments: ClassVar[Mapping[str, int | str]] = {}
    # The style's present name where this one is old (`colwise_rep`), else None.
    renamed_to: ClassVar[str | None] = None

    def __init__(self, **arguments: int | str) -> None:
        self.values = {**self.arguments, **arguments}

    def objection(self, module: Module) -> str | None:
        """Why the style can't stand on `module` (a colwise rule on a router), or None."""
        return None

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        """Why the style can't shard `parameter` by a rule of its own or its module's, or None."""
        return None

    def placement(self, parameter: ParameterEntry) -> Placement | None:
        """The placement of `parameter` on the style's axis; None leaves it untouched."""
        return None

    def lower_parameter(self, name: str, parameter: ParameterEntry, to: Lowering) -> Iterator[Operation]:
        """Operations for a parameter that got this style."""
        yield from ()

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        """Operations for a module that got this style (its parameters are lowered apart)."""
        yield from ()
