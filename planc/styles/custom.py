"""Styles from other packages, handed to the runtime as they are."""

from collections.abc import Iterator
from typing import Any

from planc.ir.operations import CustomStyle, Operation
from planc.model.manifest import Module, ParameterEntry
from planc.styles.style import Lowering, Style


class ForeignStyle(Style):
    """A registered class that planc doesn't know inside.

    The class has transformers 5.24.0's methods `shard_param`, `transform_inputs_pre_forward`,
    `transform_output_post_forward` and `install_forward`. Lowering names it; only a runtime loads and calls it.
    """

    plans = frozenset({"tp", "ep"})

    @classmethod
    def argument_objection(cls, arguments: Any) -> str | None:
        """Arguments go to the class's constructor as they are."""
        return None

    def lower_parameter(self, name: str, parameter: ParameterEntry, to: Lowering) -> Iterator[Operation]:
        yield CustomStyle(name, True, to.axis, self.name, tuple(self.values.items()))

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield CustomStyle(module.name, False, to.axis, self.name, tuple(self.values.items()))
