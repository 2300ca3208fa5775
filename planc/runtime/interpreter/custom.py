"""Styles that planc doesn't know inside: registered classes with the interface of transformers' styles."""

from typing import Any

from torch import nn

from planc.ir.operations import CustomStyle
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles


@handles(CustomStyle)
def custom_style(operation: CustomStyle, application: Application) -> None:
    """Let the style shard a parameter, or replace a module's forward after the program's own transforms are in.

    Source: `transformers/distributed/tensor_parallel.py` 5.24.0, `TensorParallelLayer` and `apply_tensor_parallelism`.
    """
    style = _find(operation)
    mesh = application.meshes.of(operation.axis)
    if operation.is_parameter:
        module, name = application.owner(operation.target)
        old = module._parameters[name]
        style.validate_param(module, name, mesh, parameter_name=operation.target)
        style.shard_param(module, name, mesh)
        new = module._parameters[name]
        if old is not None and isinstance(new, nn.Parameter) and new is not old:
            application.holders.replace(old, new)
    else:
        module = application.module(operation.target)
        application.after_install.append(lambda: style.install_forward(module, mesh))


def _find(operation: CustomStyle) -> Any:
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    if operation.style not in ALL_PARALLEL_STYLES:
        raise ApplicationError(f"no style is registered under the name `{operation.style}` (for `{operation.target}`)")
    style = ALL_PARALLEL_STYLES[operation.style]
    return type(style)(**dict(operation.arguments)) if operation.arguments else style
