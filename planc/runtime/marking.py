"""What transformers' loader leaves on a model that it sharded, left on one that planc sharded.

Trainer, `save_pretrained`, generation with a static cache and PEFT look at it, and take such a model for one of their
own: they don't wrap it again, gather its weights, and count ranks that share a batch once.
"""

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh, _distributed_barrier

from planc.program.program import Program
from planc.runtime.errors import ApplicationError, RunError
from planc.runtime.mesh import Meshes


def mark(model: nn.Module, program: Program, meshes: Meshes) -> None:
    """Make `model`, which was sharded by `program`, a distributed model to transformers; others are left alone.

    Only the instance and its config are changed. `config.json` is saved without any of it. Source:
    `DistributedMixin.maybe_distribute_model` in `transformers/distributed/mixin.py` (5.24.0), which leaves nothing
    where there is one process.
    """
    if not isinstance(model, PreTrainedModel) or program.layout.world_size == 1:
        return
    marked: Any = model
    marked.config.distributed_config = distributed_config(program)
    marked._mesh_manager = TransformersDeviceMesh(meshes.dense, meshes.expert)
    marked._device_mesh = marked._mesh_manager.get_mesh(("pp", "fsdp", "tp"))
    marked._is_distributed_loading_by_transformers = True
    marked._tp_size = program.layout.tp_size
    marked._fsdp_size = program.layout.fsdp_size
    for kind, plan in program.plans.merged.items():
        setattr(marked, f"_{kind}_plan", dict(plan))
    keep_name(marked)
    _gather_like_planc(marked)
    marked._ddp_params_and_buffers_to_ignore = _NeverByDdp()


def keep_name(model: Any) -> None:
    """Let `model` go by its own class's name, which FSDP2 changed: by it the Trainer knows what shifts labels."""
    name = type(model).__name__.removeprefix("FSDP")
    model._get_name = lambda: name


def distributed_config(program: Program) -> DistributedConfig:
    """The config with which transformers does what `program` does, as far as that can say it.

    Raises `ApplicationError` for sizes that transformers refuses.
    """
    layout, plans = program.layout, program.plans
    try:
        return DistributedConfig(
            tp_size=layout.tp_size,
            fsdp_size=layout.fsdp_size,
            dp_replicate_size=layout.dp_replicate_size,
            pp_size=layout.pp_size,
            ep_size=layout.ep_size,
            ep_implementation=layout.ep_implementation,
            **{f"{kind}_plan": dict(rules) for kind, rules in plans.given.items()},
            **plans.options,
        )
    except (TypeError, ValueError) as error:
        raise ApplicationError(f"transformers has no such layout: {error}") from error


class _NeverByDdp:
    """Stands where `DistributedDataParallel` looks first in a module, and says why it can't wrap this one."""

    def __iter__(self) -> Iterator[str]:
        raise RunError(
            "the model is sharded already, and DistributedDataParallel would copy rank 0's parameters to the others: "
            "use it as it is; for accelerate, `Accelerator(parallelism_config=planc.parallelism_config(model))`"
        )


def _gather_like_planc(model: Any) -> None:
    """Let `save_pretrained` of `model` gather as `planc.save_pretrained` does, and wait for rank 0 at every layout.

    transformers' own way (5.24.0) gathers the whole model on every rank of a TP group, saves tied weights twice there,
    and takes the first stage of a pipeline for the model.
    """
    usual = model.gather_sharded_state_dict_for_save

    @functools.wraps(usual)
    def gather(model_to_save: Any, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        # Not above: saving needs `planc.runtime.apply`, which marks models.
        from planc.runtime.checkpoint.saving import gather_on_writer

        if getattr(model, "_hf_peft_config_loaded", False):
            kept: dict[str, Any] = usual(model_to_save, state_dict, *args, **kwargs)
            return kept
        return gather_on_writer(model_to_save, state_dict)

    model.gather_sharded_state_dict_for_save = gather
    model.barrier_after_gathered_checkpoint_save = lambda *_: _distributed_barrier()
