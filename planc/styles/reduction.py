"""Styles that only sum what flows out of a module, or its gradient."""

from collections.abc import Iterator

from planc.ir.operations import DivideInput, Operation, RunLocal, SumOutputGradient, TransformInput, TransformOutput
from planc.layouts.placement import Partial, Replicate
from planc.model.manifest import Manifest, Module
from planc.styles.style import Lowering, Style, StyleError
from planc.styles.types import StyleType

R, P = Replicate(), Partial()
ROPE = "qk_rope_head_dim"


class AllReduce(Style):
    """The module's output is a summand of each rank: sum it (`AllReduceParallel`, transformers 5.24.0)."""

    name = "all_reduce"
    plans = frozenset({"tp", "ep"})

    def type(self, module: Module) -> StyleType:
        return StyleType(yields=P, output=R)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield TransformOutput(module.name, to.axis, source=P, target=R, gradient=R)


class MoeTpExperts(Style):
    """Every rank runs its slice of every expert on all tokens; outputs and input gradients are summed.

    Source: `MoeExpertsParallel`, transformers 5.24.0. The expert weights have rules of their own. The routing weights
    (third positional input, where there is one) get their gradient summed too.
    """

    name = "moe_tp_experts"
    # In an EP plan transformers refuses it by name.
    plans = frozenset({"tp"})

    def type(self, module: Module) -> StyleType:
        return StyleType(input=R, computes=R, yields=P, output=R, input_gradient=P, arguments=(0, 2), runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        for argument in (0, 2):
            yield TransformInput(module.name, to.axis, argument, source=R, target=R, gradient=P)
        yield RunLocal(module.name)
        yield TransformOutput(module.name, to.axis, source=P, target=R, gradient=R)


class MoeIdentityExpert(Style):
    """An identity among summed experts: its input is divided by the axis size (`MoeIdentityParallel`)."""

    name = "moe_identity_expert"
    plans = frozenset({"tp", "ep"})

    def type(self, module: Module) -> StyleType:
        return StyleType(input=R, computes=P, divides_input=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield DivideInput(module.name, to.axis)


class LocalParams(Style):
    """The module computes on the local tensors of its own sharded parameters (attention sinks).

    Source: `LocalParamsParallel`, transformers 5.24.0.
    """

    name = "local_params"
    plans = frozenset({"tp", "ep"})

    def type(self, module: Module) -> StyleType:
        return StyleType(runs_local=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield RunLocal(module.name)


class MlaKvAProj(Style):
    """The gradient of the last `qk_rope_head_dim` output features is summed: they bypass the sharded `kv_b_proj`.

    Source: `MlaKvAProjParallel`, transformers 5.24.0. Only a TP plan hands the module the model's config.
    """

    name = "mla_kv_a_proj"
    plans = frozenset({"tp"})
    refused_elsewhere = False

    def model_objection(self, manifest: Manifest) -> str | None:
        if rope_head_dim(manifest) is not None:
            return None
        return f"the config of `{manifest.file.class_name}` has no `{ROPE}`, which `{self.name}` splits off"

    def type(self, module: Module) -> StyleType:
        return StyleType(sums_output_gradient=True)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        features = rope_head_dim(to.manifest)
        if features is None:
            raise StyleError(str(self.model_objection(to.manifest)))
        if features:
            yield SumOutputGradient(module.name, to.axis, features)


def rope_head_dim(manifest: Manifest) -> int | None:
    """`qk_rope_head_dim` of the model's text config, if it has one."""
    config = manifest.file.config
    for candidate in (config.get("text_config"), config):
        if isinstance(candidate, dict) and isinstance(value := candidate.get(ROPE), int):
            return value
    return None
