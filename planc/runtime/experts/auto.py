"""The default: what fits the layout and the moment."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.runtime.experts.all_reduce import AllReduce
from planc.runtime.experts.all_to_all import AllToAll
from planc.runtime.experts.implementation import ExpertImplementation
from planc.runtime.experts.megamoe import megamoe, runs_megamoe


class Auto(ExpertImplementation):
    """`all_reduce` without gradients where the group shares one batch, else `all_to_all`; Mega MoE for its experts.

    Same choice as `AutoEP`, `transformers/distributed/expert_parallel.py` 5.24.0.
    """

    def __init__(self, experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self._fused = megamoe(experts, ep_mesh, tp_mesh) if runs_megamoe(experts) else None
        self._all_to_all = AllToAll(experts, ep_mesh, tp_mesh)
        self._all_reduce = AllReduce(experts, ep_mesh, tp_mesh) if self.shares_batch else None

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        if self._fused is not None:
            output: Tensor = self._fused(hidden_states, top_k_index, top_k_weights)
            return output
        if self._all_reduce is not None and not (torch.is_grad_enabled() and hidden_states.requires_grad):
            return self._all_reduce(hidden_states, top_k_index, top_k_weights)
        return self._all_to_all(hidden_states, top_k_index, top_k_weights)
