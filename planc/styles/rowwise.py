"""Row-wise Linear layers: every rank multiplies a block of the input features, and the products are summed."""

from collections.abc import Iterator

from planc.ir.operations import Operation, RunLocal, TransformInput, TransformOutput
from planc.layouts.placement import Partial, Placement, Replicate, Shard
from planc.model.manifest import Module, ParameterEntry
from planc.styles.style import Lowering, Style, scalar_objection
from planc.styles.types import StyleType

R, P, LAST = Replicate(), Partial(), Shard(-1)


class Rowwise(Style):
    """Weight sharded on the input features, input sharded on its last dim, output summed; the bias is added once.

    Source: `RowwiseParallel`, transformers 5.24.0. Only a parameter called `bias` is replicated; every other one is
    sharded on its last dim. `in_features` needn't divide by the axis.
    """

    name = "rowwise"
    plans = frozenset({"tp", "ep"})

    def objection(self, module: Module) -> str | None:
        if "in_features" in module.entry.sizes:
            return None
        return f"`{module.entry.class_name}` has no `in_features`: `{self.name}` shards Linear modules"

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        return None if parameter.name == "bias" else scalar_objection(self, parameter)

    def placement(self, parameter: ParameterEntry) -> Placement:
        return R if parameter.name == "bias" else Shard(max(len(parameter.shape) - 1, 0))

    def type(self, module: Module) -> StyleType:
        return StyleType(input=LAST, computes=LAST, yields=P, output=R, input_gradient=LAST, runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        bias = tuple(name for name, parameter in module.parameters.items() if parameter.name == "bias")
        yield RunLocal(module.name, added_after=bias)
        yield TransformOutput(module.name, to.axis, source=P, target=R, gradient=R)


class RowwiseSplitInput(Rowwise):
    """As `rowwise`, for an input that is whole on every rank: each takes its block of it."""

    name = "rowwise_split_input"

    def type(self, module: Module) -> StyleType:
        return StyleType(input=R, computes=LAST, yields=P, output=R, input_gradient=LAST, runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield TransformInput(module.name, to.axis, 0, source=R, target=LAST, gradient=LAST)
        yield from super().lower_module(module, to)


class RowwiseRep(RowwiseSplitInput):
    """The old name of `rowwise_split_input`."""

    name = "rowwise_rep"
    renamed_to = "rowwise_split_input"
