"""Styles from other packages, handed to the runtime as they are."""

from collections.abc import Iterator, Mapping
from typing import Any

from planc.ir.operations import CustomStyle, Operation
from planc.layouts.placement import Placement
from planc.model.manifest import Module, ParameterEntry
from planc.styles.style import Lowering, Style
from planc.styles.types import StyleType

# Classes of modules on which a style can be watched.
WATCHED = ("Linear", "Embedding")


class ForeignStyle(Style):
    """A registered class or object that planc doesn't know inside.

    It has transformers 5.24.0's methods `shard_param`, `transform_inputs_pre_forward`,
    `transform_output_post_forward` and `install_forward`. Lowering names it; only a runtime loads and calls it.
    """

    plans = frozenset({"tp", "ep"})

    @classmethod
    def like(cls, values: Mapping[str, int | str], kind: str) -> Style | None:
        """The style of planc's that does the same, with these arguments, to modules of class `kind`, where known."""
        return None

    @classmethod
    def argument_objection(cls, arguments: Any) -> str | None:
        """Arguments go to the class's constructor as they are."""
        return None

    def at(self, module: Module) -> Style:
        """What is known of the style on `module`."""
        kind = module.entry.class_name
        like = self.like(self.values, kind) if kind in WATCHED else None
        return self if like is None else WatchedStyle(self, like)

    def lower_parameter(self, name: str, parameter: ParameterEntry, to: Lowering) -> Iterator[Operation]:
        yield CustomStyle(name, True, to.axis, self.name, tuple(self.values.items()))

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield CustomStyle(module.name, False, to.axis, self.name, tuple(self.values.items()))


def is_not_known(style: Style) -> bool:
    """Whether nothing is known of what a style does."""
    return isinstance(style, ForeignStyle) and not isinstance(style, WatchedStyle)


class WatchedStyle(ForeignStyle):
    """A foreign style on a module where it does what one of planc's does: typed like that, and run as itself."""

    def __init__(self, style: ForeignStyle, like: Style) -> None:
        super().__init__(**style.values)
        self.name = style.name  # type: ignore[misc]  # one class for all of them
        self._style, self._like = style, like

    def at(self, module: Module) -> Style:
        return self

    def on_tied(self, placement: Placement | None, alone: bool) -> Style:
        """It was watched with parameters of its own."""
        return self._style

    def objection(self, module: Module) -> str | None:
        return self._like.objection(module)

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        return self._like.parameter_objection(module, parameter)

    def placement(self, parameter: ParameterEntry) -> Placement | None:
        return self._like.placement(parameter)

    def type(self, module: Module) -> StyleType:
        return self._like.type(module)
