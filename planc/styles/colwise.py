"""Column-wise Linear layers: every rank computes a block of the output features."""

from collections.abc import Iterator

from planc.ir.operations import Operation, RunLocal, TransformInput, TransformOutput
from planc.layouts.placement import Partial, Placement, Replicate, Shard
from planc.model.manifest import Module, ParameterEntry
from planc.styles.style import Lowering, Style, scalar_objection
from planc.styles.types import StyleType

R, P, LAST = Replicate(), Partial(), Shard(-1)


class Colwise(Style):
    """Weight and bias sharded on the output features, replicated input, output sharded on its last dim.

    Source: `ColwiseParallel`, transformers 5.24.0. Each parameter is sharded on dim `ndim - 2` (a bias on its only
    one). `out_features` needn't divide by the axis.
    """

    name = "colwise"
    plans = frozenset({"tp", "ep"})

    def objection(self, module: Module) -> str | None:
        if "out_features" in module.entry.sizes:
            return None
        return f"`{module.entry.class_name}` has no `out_features`: `{self.name}` shards Linear modules"

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        return scalar_objection(self, parameter)

    def placement(self, parameter: ParameterEntry) -> Placement:
        return Shard(max(len(parameter.shape) - 2, 0))

    def type(self, module: Module) -> StyleType:
        return StyleType(input=R, computes=R, yields=LAST, output=LAST, input_gradient=P, runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield TransformInput(module.name, to.axis, 0, source=R, target=R, gradient=P)
        yield RunLocal(module.name)


class ColwiseGatherOutput(Colwise):
    """As `colwise`, and the output features are gathered: whole on every rank."""

    name = "colwise_gather_output"

    def type(self, module: Module) -> StyleType:
        return StyleType(input=R, computes=R, yields=LAST, output=R, input_gradient=P, runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield from super().lower_module(module, to)
        size = module.entry.sizes["out_features"]
        yield TransformOutput(module.name, to.axis, source=LAST, target=R, gradient=R, size=size)


class ColwiseRep(ColwiseGatherOutput):
    """The old name of `colwise_gather_output`."""

    name = "colwise_rep"
    renamed_to = "colwise_gather_output"
