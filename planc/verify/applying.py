"""Two ways to shard a copy on a rank: planc's program, and transformers' own functions as a second opinion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn
from transformers import PreTrainedModel

from planc.layouts.layout import Layout
from planc.program.program import Program
from planc.runtime.interpreter import apply_operations
from planc.runtime.mesh import Meshes


class Application(Protocol):
    """Something that shards a model on this rank, in place."""

    @property
    def layout(self) -> Layout: ...

    def apply(self, model: nn.Module, meshes: Meshes) -> nn.Module:
        """Shard `model` and install its transforms. May raise anything."""


@dataclass(frozen=True, slots=True)
class ByProgram:
    """planc's own program, through planc's runtime."""

    program: Program

    @property
    def layout(self) -> Layout:
        return self.program.layout

    def apply(self, model: nn.Module, meshes: Meshes) -> nn.Module:
        return apply_operations(model, self.program.operations, meshes)


@dataclass(frozen=True, slots=True)
class ByTransformers:
    """`apply_tensor_parallelism`, `apply_expert_parallelism` and `fully_shard`, as `maybe_distribute_model` calls them.

    Source: `DistributedMixin.maybe_distribute_model` in `transformers/distributed/mixin.py` (5.24.0). The plans map
    concrete names to styles.
    """

    layout: Layout
    tp: Mapping[str, str]
    ep: Mapping[str, str]
    fsdp: Mapping[str, str]

    def apply(self, model: nn.Module, meshes: Meshes) -> nn.Module:
        from transformers.distributed.expert_parallel import apply_expert_parallelism
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism

        _untie(model)
        if self.layout.tp_size > 1:
            apply_tensor_parallelism(model, meshes.of("tp"), dict(self.tp))
        if self.layout.ep_size > 1 and "ep_dispatch_experts" in self.ep.values():
            implementation = self.layout.ep_implementation
            apply_expert_parallelism(model, meshes.of("ep"), meshes.of("tp"), dict(self.ep), implementation)
        if isinstance(model, PreTrainedModel):
            model.tie_weights(recompute_mapping=False)
        if self.layout.dp_size > 1:
            _fully_shard(model, meshes, self)
        return model


def _untie(model: nn.Module) -> None:
    """Tied parameters under names of their own, as `from_pretrained` has them when it applies plans.

    It builds the model in the context `no_tie_weights` (`transformers/modeling_utils.py`) and ties afterwards.
    """
    for tied in getattr(model, "all_tied_weights_keys", None) or {}:
        owner, _, name = tied.rpartition(".")
        module = model.get_submodule(owner)
        parameter = module._parameters.get(name)
        if parameter is not None:
            module._parameters[name] = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)


def _fully_shard(model: nn.Module, meshes: Meshes, application: ByTransformers) -> None:
    from transformers.distributed import DistributedConfig
    from transformers.distributed.fsdp import apply_fully_sharded_data_parallelism

    layout = application.layout
    assert isinstance(model, PreTrainedModel)
    model.config.distributed_config = DistributedConfig(
        tp_size=layout.tp_size,
        fsdp_size=layout.fsdp_size,
        dp_replicate_size=layout.dp_replicate_size,
        ep_size=layout.ep_size,
    )
    apply_fully_sharded_data_parallelism(model, _MeshManager(meshes), dict(application.fsdp), dict(application.ep))


@dataclass(frozen=True, slots=True)
class _MeshManager:
    """The part of `TransformersDeviceMesh` that FSDP asks for."""

    meshes: Meshes

    def get_mesh(self, names: str | tuple[str, ...]) -> object:
        return self.meshes.of(*((names,) if isinstance(names, str) else names))  # type: ignore[arg-type]
