"""Parameters that every rank keeps whole."""

from collections.abc import Iterator

from planc.ir.operations import Operation, RunLocal, ShardParameter, SumGradient
from planc.layouts.placement import Replicate, Shard
from planc.model.manifest import Module
from planc.styles.style import Lowering, Style
from planc.styles.types import StyleType


class ReplicateStyle(Style):
    """Nothing happens: the parameter stays whole on every rank (`TensorParallelLayer`, transformers 5.24.0)."""

    name = "replicate"
    plans = frozenset({"tp", "ep"})


class ReplicatedWithGradAllReduce(Style):
    """Replicated parameters whose gradients are partial: norms that see only this rank's heads.

    Source: `ReplicatedWithGradAllReduce`, transformers 5.24.0. It hooks the module; on a parameter alone, without a
    rule for its module, it does nothing.
    """

    name = "replicated_with_grad_allreduce"
    plans = frozenset({"tp", "ep"})

    def type(self, module: Module) -> StyleType:
        return StyleType(sums_parameter_gradients=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        for name in module.parameters:
            yield SumGradient(name, to.axis)


class SequenceParallel(Style):
    """Replicated parameters, input and output sharded on the sequence dim (1).

    Source: `SequenceParallel`, transformers 5.24.0. It takes the local input to be a block of the sequence and moves
    nothing; under DTensor's rules the gradients of the module's parameters are then summed over the axis.
    """

    name = "sequence_parallel"
    plans = frozenset({"tp", "ep"})

    def objection(self, module: Module) -> str | None:
        if module.entry.parameters or not module.has_children:
            return None
        return (
            f"`{module.entry.class_name}` has no parameters of its own: `{self.name}` would hand its children inputs "
            "sharded on the sequence, which they don't take"
        )

    def type(self, module: Module) -> StyleType:
        sequence = Shard(1)
        return StyleType(
            input=sequence,
            computes=sequence,
            yields=sequence,
            output=sequence,
            input_gradient=sequence,
            runs_local=True,
            sums_parameter_gradients=True,
        )

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        for name in module.parameters:
            yield ShardParameter(name, to.axis, Replicate())
        yield RunLocal(module.name)
        for name in module.parameters:
            yield SumGradient(name, to.axis)
