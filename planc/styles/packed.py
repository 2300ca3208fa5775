"""Fused weights: every rank takes its block of each packed part (gate and up)."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from planc.ir.operations import Operation, RunLocal, TransformInput
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.model.manifest import Module, ParameterEntry
from planc.styles.replicated import ReplicateStyle
from planc.styles.style import Lowering, Style, scalar_objection
from planc.styles.types import StyleType

# Released models pack at most seven projections into one weight; every part costs time in each analysis.
MOST_PARTS = 256

R, P, LAST = Replicate(), Partial(), Shard(-1)


class _Packed(Style):
    plans = frozenset({"tp", "ep"})
    arguments: ClassVar[Mapping[str, int | str]] = {"split_factor": 2}

    @property
    def split_factor(self) -> int:
        """How many packed parts the dim has."""
        return int(self.values["split_factor"])

    @classmethod
    def argument_objection(cls, arguments: Mapping[str, int | str]) -> str | None:
        objection = super().argument_objection(arguments)
        if objection is None and not 1 <= int(arguments.get("split_factor", 2)) <= MOST_PARTS:
            return f"`split_factor` of `{cls.name}` is 1 to {MOST_PARTS}, got {arguments['split_factor']}"
        return objection

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        return scalar_objection(self, parameter)


class PackedColwise(_Packed):
    """Parts packed along the output features (dim -2, of expert weights too); a bias is one contiguous block.

    Source: `PackedColwiseParallel`, transformers 5.24.0. The module needs no `out_features`; its output stays local.
    """

    name = "packed_colwise"

    def placement(self, parameter: ParameterEntry) -> Placement:
        if len(parameter.shape) < 2:
            return Shard(0)
        return StridedShard(len(parameter.shape) - 2, self.split_factor)

    def type(self, module: Module) -> StyleType:
        parts = StridedShard(-1, self.split_factor)
        return StyleType(input=R, computes=R, yields=parts, output=parts, input_gradient=P, runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield TransformInput(module.name, to.axis, 0, source=R, target=R, gradient=P)
        yield RunLocal(module.name)


class PackedRowwise(_Packed):
    """Parts packed along the last dim of a parameter; a one-dimensional parameter is replicated.

    Source: `PackedRowwiseParallel`, transformers 5.24.0. It installs no hooks: a module whose parameters it shards
    must run on local tensors by another style (`moe_tp_experts`), so it stands on parameters.
    """

    name = "packed_rowwise"

    def objection(self, module: Module) -> str | None:
        return needs_local_run(self, module)

    def on_tied(self, placement: Placement | None, alone: bool) -> Style:
        """It hooks no forward, so that nothing is left of it where the parameter is a plain tensor."""
        return ReplicateStyle() if placement is None and alone else self

    def placement(self, parameter: ParameterEntry) -> Placement:
        if len(parameter.shape) == 1:
            return R
        return StridedShard(max(len(parameter.shape) - 1, 0), self.split_factor)


def needs_local_run(style: Style, module: Module) -> str | None:
    """A style that shards parameters and installs no hooks leaves a module to mix DTensors with plain tensors."""
    if not module.entry.parameters:
        return None
    names = ", ".join(f"`{p.name}`" for p in module.entry.parameters)
    return (
        f"`{style.name}` shards the parameters of `{module.entry.class_name}` ({names}) and doesn't hook its forward, "
        "which then mixes sharded and plain tensors: name its parameters, and give the module a style that runs it"
    )
