"""FSDP2 groups, by torch's own `fully_shard`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

from planc.ir.operations import WrapFsdp
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles


@handles(WrapFsdp, late=True)
def wrap_fsdp(operation: WrapFsdp, application: Application) -> None:
    """Shard the modules of the operation as one group.

    Policies are those of transformers 5.24.0, `_get_fsdp_policy_kwargs` in `transformers/distributed/fsdp.py`.
    """
    modules = [application.module(name) for name in operation.modules]
    modules.extend(sharing(modules, application.model))
    _refuse_several_dtypes(modules, application.model)
    options: dict[str, Any] = {}
    if operation.reshard_after_forward is not None:
        options["reshard_after_forward"] = operation.reshard_after_forward
    if operation.mixed_precision:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if operation.cpu_offload:
        # Pinning needs an accelerator; transformers fails without one.
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=torch.accelerator.is_available())
    # FSDP2 takes a single module for a tree, and a list for one group.
    group = modules[0] if len(modules) == 1 else modules
    wrapped: Any = fully_shard(group, mesh=application.meshes.of(*operation.axes), **options)
    for module in [wrapped] if len(modules) == 1 else wrapped:
        if operation.gradient_divisor is not None:
            module.set_gradient_divide_factor(float(operation.gradient_divisor))
        if operation.sum_gradients:
            module.set_force_sum_reduction_for_comms(True)
    if "" in operation.modules:
        # transformers' generation looks at it: ranks must go on together.
        application.model._is_fsdp_managed_module = True  # type: ignore[assignment]


def _refuse_several_dtypes(modules: list[nn.Module], model: nn.Module) -> None:
    """Refuse a group whose trained parameters have several dtypes, which FSDP2 does at the first forward.

    Those that stay in float32 beside others have groups of their own in a program compiled for that dtype.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    kinds: dict[torch.dtype, str] = {}
    for parameter in own_parameters(modules):
        if parameter.requires_grad and parameter.is_floating_point():
            kinds.setdefault(parameter.dtype, names.get(id(parameter), "?"))
    if len(kinds) > 1:
        told = " and ".join(f"`{name}` is {str(dtype).removeprefix('torch.')}" for dtype, name in kinds.items())
        raise ApplicationError(
            f"FSDP can't shard parameters of several dtypes as one group: {told}. Compile the plan for "
            "the dtype of the model: `planc.compile(..., dtype=...)`, or `planc apply --dtype`"
        )


def own_parameters(modules: list[nn.Module]) -> Iterator[nn.Parameter]:
    """The parameters of a group to be: of `modules` and what is in them, but for groups that are there already."""
    for module in modules:
        yield from (parameter for parameter in module._parameters.values() if parameter is not None)
        children = [child for child in module.children() if not isinstance(child, FSDPModule)]
        yield from own_parameters(children)


def sharing(modules: list[nn.Module], model: nn.Module) -> Iterator[nn.Module]:
    """The modules of `model` outside of `modules` that hold a parameter of theirs as well (a tied head).

    FSDP2 gives a parameter to one group, and sets its shards in the modules of that group alone. transformers 5.24.0
    ties after it wrapped: the two groups gather the weight and reduce its gradient twice there.
    """
    inside = {inner for module in modules for inner in module.modules()}
    own = {id(parameter) for module in inside for parameter in module._parameters.values() if parameter is not None}
    for module in model.modules():
        if module not in inside and any(id(p) in own for p in module._parameters.values() if p is not None):
            yield module
