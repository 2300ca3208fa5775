"""Every rank runs its own experts on the whole batch; the outputs are summed."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.layouts.placement import Partial, Replicate
from planc.runtime.collectives import change
from planc.runtime.experts.implementation import ExpertImplementation


class AllReduce(ExpertImplementation):
    """No token moves and no size is read back to the host; needs `ep_size == tp_size`.

    Routes to other ranks' experts get the local id `num_local_experts`, which experts skip, and weight 0. Same
    masking as `AllReduceEP`, `transformers/distributed/expert_parallel.py` 5.24.0, except that a rank whose experts
    got no token stays in the autograd graph: there, with eager experts, it skips the backward collectives, and the
    other ranks of its group wait for it or take another collective's data.
    """

    needs_shared_batch = True

    def __init__(self, experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self._experts = experts
        whole, summand = Replicate(), Partial()
        # Each rank backpropagates through its own experts only: what it computes of a shared input's gradient is a
        # summand.
        self._share = change(whole, whole, summand, self.ep_group)
        self._sum = change(summand, whole, whole, self.ep_group)

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        if self._share is not None:
            hidden_states, top_k_weights = self._share(hidden_states), self._share(top_k_weights)
        elsewhere = top_k_index // self.num_local_experts != self.ep_mesh.get_local_rank()
        local_ids = torch.where(elsewhere, self.num_local_experts, top_k_index % self.num_local_experts)
        output: Tensor = self.experts_forward(hidden_states, local_ids, top_k_weights.masked_fill(elsewhere, 0.0))
        if torch.is_grad_enabled() and not output.requires_grad:
            output = output + nothing_of(hidden_states, top_k_weights, *self._experts._parameters.values())
        return output if self._sum is None else self._sum(output)


def nothing_of(*tensors: Tensor | None) -> Tensor:
    """Zero, as a sum of no element of `tensors`: with it in the graph each of them gets a gradient of zeros."""
    return torch.stack([tensor.flatten()[:0].sum() for tensor in tensors if tensor is not None]).sum()
