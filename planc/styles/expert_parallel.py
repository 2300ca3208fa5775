"""Whole experts per rank: sharded by expert, reached through an EP implementation."""

from collections.abc import Iterator

from planc.ir.operations import DispatchExperts, LocalExperts, Operation, RunLocal
from planc.layouts.placement import Placement, Shard
from planc.model.manifest import Module, ParameterEntry
from planc.styles.packed import needs_local_run
from planc.styles.replicated import ReplicateStyle
from planc.styles.style import Lowering, Style, StyleError, scalar_objection
from planc.styles.types import StyleType


class GroupedGemm(Style):
    """Expert weights sharded by expert (dim 0); the module's `num_experts` becomes this rank's own.

    Source: `MoEParamShard`, transformers 5.24.0. Where the module has `num_experts`, the experts must divide by the
    axis. Installs no hooks.
    """

    name = "grouped_gemm"
    plans = frozenset({"tp", "ep"})

    def objection(self, module: Module) -> str | None:
        return needs_local_run(self, module)

    def on_tied(self, placement: Placement | None, alone: bool) -> Style:
        """It hooks no forward, so that nothing is left of it where the parameter is a plain tensor."""
        return ReplicateStyle() if placement is None and alone else self

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        return scalar_objection(self, parameter)

    def placement(self, parameter: ParameterEntry) -> Placement:
        return Shard(0)

    def lower_parameter(self, name: str, parameter: ParameterEntry, to: Lowering) -> Iterator[Operation]:
        module, _ = to.manifest.parameters[name]
        if "num_experts" in module.entry.sizes:
            count, rest = divmod(parameter.shape[0], to.size)
            if rest:
                raise StyleError(f"{parameter.shape[0]} experts don't divide over {to.axis}_size={to.size}")
            yield LocalExperts(module.name, to.axis, count)
        yield from super().lower_parameter(name, parameter, to)


class EpDispatchExperts(Style):
    """Tokens reach the experts, wherever they are, through the layout's EP implementation.

    Source: `EpDispatchExpertsParallel` and `EPImplementation`, transformers 5.24.0.
    """

    name = "ep_dispatch_experts"
    plans = frozenset({"ep"})

    def objection(self, module: Module) -> str | None:
        kind, experts = module.entry.class_name, module.entry.experts
        if "num_experts" not in module.entry.sizes:
            return f"`{kind}` has no `num_experts`: `{self.name}` dispatches to experts modules"
        if experts is not None and not experts.routed:
            return f"`{kind}` doesn't take hidden states, expert ids and routing weights, which `{self.name}` passes"
        return None

    def type(self, module: Module) -> StyleType:
        return StyleType(runs_local=True, dispatches=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield RunLocal(module.name)
        yield DispatchExperts(module.name, to.axis, "tp", to.layout.ep_implementation)
