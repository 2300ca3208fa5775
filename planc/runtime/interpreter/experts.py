"""Experts of one's own, and how tokens reach them."""

from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from planc.ir.operations import DispatchExperts, LocalExperts
from planc.runtime.experts.registry import implementation
from planc.runtime.interpreter.application import Application, handles
from planc.runtime.interpreter.forward import Forward


@handles(LocalExperts)
def keep_local_experts(operation: LocalExperts, application: Application) -> None:
    """Tell the module how many experts it holds; transformers' experts then skip ids from there on."""
    module: Any = application.module(operation.module)
    module.num_experts = operation.count
    module._is_expert_parallel = True


@handles(DispatchExperts)
def dispatch_experts(operation: DispatchExperts, application: Application) -> None:
    """Put the chosen implementation around the module's forward."""
    module = application.module(operation.module)
    meshes = application.meshes
    chosen = implementation(operation.implementation)
    dispatch = chosen(module, meshes.of(operation.axis), meshes.of(operation.batch_axis))

    def wrap(forward: Forward) -> Forward:
        # The implementation took the module's own forward when it was made.
        def dispatched(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
            states, weights = plain(hidden_states), plain(top_k_weights)
            return dispatch(states, plain(top_k_index), weights).to(states.dtype)

        return dispatched

    application.around(operation.module).wrappers.append(wrap)


def plain(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
