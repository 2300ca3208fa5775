"""What a style is: one class each, declared here, registered in `planc.styles.registry`."""

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from planc.ir.operations import Operation, ShardParameter
from planc.layouts.layout import Axis, Layout
from planc.layouts.placement import Placement
from planc.model.manifest import Manifest, Module, ParameterEntry
from planc.styles.types import StyleType
from planc.syntax.plan import PlanKind


class StyleError(Exception):
    """Why a style can't be lowered on a module or parameter of this model at this layout; one sentence."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """What lowering may look at."""

    manifest: Manifest
    layout: Layout
    axis: Axis

    @property
    def size(self) -> int:
        """The number of ranks of the style's axis."""
        return self.layout.size(self.axis)


class Style(ABC):
    """A named way to shard parameters and to transform what goes in and out of a module.

    `arguments` are the legal arguments with their default values (`{"split_factor": 2}`); an instance is one use.
    `plans` are those in which the style can be applied at all. Behaviour follows transformers 5.24.0,
    `distributed/tensor_parallel.py` and `distributed/expert_parallel.py`.
    """

    name: ClassVar[str]
    plans: ClassVar[frozenset[PlanKind]]
    # Whether the style is refused by name in other plans; else it fails there only where it hooks a module.
    refused_elsewhere: ClassVar[bool] = True
    arguments: ClassVar[Mapping[str, int | str]] = {}
    # The style's present name where this one is old (`colwise_rep`), else None.
    renamed_to: ClassVar[str | None] = None

    def __init__(self, **arguments: int | str) -> None:
        self.values = {**self.arguments, **arguments}

    @classmethod
    def argument_objection(cls, arguments: Mapping[str, int | str]) -> str | None:
        """Why `arguments` are not legal for the style, or None."""
        for name, value in arguments.items():
            if name not in cls.arguments:
                known = ", ".join(f"`{n}`" for n in cls.arguments) or "none"
                return f"`{cls.name}` has no argument `{name}` (it takes {known})"
            if not isinstance(value, type(cls.arguments[name])):
                return f"`{name}` of `{cls.name}` is of type {type(cls.arguments[name]).__name__}, got `{value}`"
        return None

    def model_objection(self, manifest: Manifest) -> str | None:
        """Why the style can't be used on this model at all, or None."""
        return None

    def objection(self, module: Module) -> str | None:
        """Why the style can't stand on `module` (a colwise rule on a router), or None.

        Says what transformers 5.24.0 refuses when it applies the plan, and what then crashes in every forward.
        """
        return None

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        """Why the style can't shard `parameter` by a rule of its own or its module's, or None."""
        return None

    def placement(self, parameter: ParameterEntry) -> Placement | None:
        """The placement of `parameter` on the style's axis; None leaves it untouched (a plain tensor, replicated)."""
        return None

    def type(self, module: Module) -> StyleType:
        """The style as a typed function, when it stands on `module`."""
        return StyleType()

    def at(self, module: Module) -> "Style":
        """The style as it is known to act on `module`, or on a parameter of it."""
        return self

    def on_tied(self, placement: Placement | None, alone: bool) -> "Style":
        """The style that does the same where a parameter is another module's, placed as `placement` there.

        None stands for a plain tensor. `alone`: the module has no other parameter.
        """
        return self

    def lower_parameter(self, name: str, parameter: ParameterEntry, to: Lowering) -> Iterator[Operation]:
        """Operations for a parameter that got this style. Raises StyleError."""
        placement = self.placement(parameter)
        if placement is not None:
            yield ShardParameter(name, to.axis, placement)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        """Operations for a module that got this style (its parameters are lowered apart). Raises StyleError."""
        yield from ()


class PlacedByOwner(Style):
    """A style on a tied parameter: it is the owner's tensor, where the owner's rule has put it."""

    plans = frozenset({"tp", "ep"})

    def __init__(self, style: Style, placement: Placement | None) -> None:
        super().__init__()
        self.name = style.name  # type: ignore[misc]  # messages speak of the user's style
        self._placement = placement

    def placement(self, parameter: ParameterEntry) -> Placement | None:
        return self._placement


def scalar_objection(style: Style, parameter: ParameterEntry) -> str | None:
    """Scalars have no dim to shard: torch's `distribute_tensor` fails on them."""
    if parameter.shape:
        return None
    return f"`{parameter.name}` is a scalar: `{style.name}` has no dim to shard"
