"""Styles that planc doesn't know inside: registered objects with the interface of transformers' styles."""

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from planc.ir.operations import CustomStyle
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles
from planc.styles import registry


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
        shard(style, module, name, mesh, operation.target)
        new = module._parameters[name]
        if old is not None and isinstance(new, nn.Parameter) and new is not old:
            application.holders.replace(old, new)
    else:
        module = application.module(operation.target)
        application.after_install.append(lambda: style.install_forward(module, mesh))


def shard(style: Any, module: nn.Module, name: str, mesh: DeviceMesh, full_name: str) -> None:
    """Let a style shard one parameter of a module, as transformers does. May raise anything."""
    style.validate_param(module, name, mesh, parameter_name=full_name)
    style.shard_param(module, name, mesh)


def _find(operation: CustomStyle) -> Any:
    """The object that was registered, or one of its class with the arguments of the rule."""
    try:
        found = registry.style_object(operation.style)
    except KeyError:
        raise ApplicationError(
            f"no style is registered under the name `{operation.style}` (for `{operation.target}`): import what "
            "registers it, or name that by `--styles-module`"
        ) from None
    except Exception as error:  # a package's own code
        raise ApplicationError(f"the style `{operation.style}` can't be loaded: {error}") from error
    if not isinstance(found, type) and not operation.arguments:
        return found
    return _complete(found if isinstance(found, type) else type(found))(**dict(operation.arguments))


def _complete(cls: type[Any]) -> type[Any]:
    """`cls` with the methods of transformers' base class that it has none of its own for."""
    from transformers.distributed.expert_parallel import ExpertParallelLayer
    from transformers.distributed.tensor_parallel import TensorParallelLayer

    if issubclass(cls, TensorParallelLayer | ExpertParallelLayer):
        return cls
    return type(cls.__name__, (cls, TensorParallelLayer), {})
