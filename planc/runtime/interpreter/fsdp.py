"""FSDP2 groups, by torch's own `fully_shard`."""

from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from planc.ir.operations import WrapFsdp
from planc.runtime.interpreter.application import Application, handles


@handles(WrapFsdp, late=True)
def wrap_fsdp(operation: WrapFsdp, application: Application) -> None:
    """Shard the modules of the operation as one group.

    Policies are those of transformers 5.24.0, `_get_fsdp_policy_kwargs` in `transformers/distributed/fsdp.py`.
    """
    modules = [application.module(name) for name in operation.modules]
    options: dict[str, Any] = {}
    if operation.reshard_after_forward is not None:
        options["reshard_after_forward"] = operation.reshard_after_forward
    if operation.mixed_precision:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if operation.cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy()
    group = modules[0] if len(modules) == 1 else modules
    wrapped: Any = fully_shard(group, mesh=application.meshes.of(*operation.axes), **options)
    for module in [wrapped] if len(modules) == 1 else wrapped:
        if operation.gradient_divisor is not None:
            module.set_gradient_divide_factor(float(operation.gradient_divisor))
        if operation.sum_gradients:
            module.set_force_sum_reduction_for_comms(True)
    if "" in operation.modules:
        # Each group shards its own copy of a tied parameter. As `tie_weights` of transformers 5.24.0 does after wrapping:
        # all groups take over the one parameter at the first forward.
        application.holders.tie_again()
        # transformers' generation looks at it: ranks must go on together.
        application.model._is_fsdp_managed_module = True  # type: ignore[assignment]
