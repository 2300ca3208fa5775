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
    masking as `AllReduceEP`, `transformers/distributed/expert_parallel.py` 5.24.0.
    """

    needs_shared_batch = True

    def __init__(self, experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
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
        return output if self._sum is None else self._sum(output)
