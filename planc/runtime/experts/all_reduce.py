"""Every rank runs its own experts on the whole batch; the outputs are summed."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.layouts.placement import Partial, Replicate
from planc.runtime.collectives import change
from planc.runtime.experts.implementation import ExpertImplementation


class AllReduce(ExpertImplementation):
    """No token moves; needs `ep_size == tp_size`.

    Routes to other ranks' experts get the local id `num_local_experts`, which the experts implementations of
    transformers skip, and weight 0: no size is read back to the host. Eager experts read one back anyway and needn't
    know that id (gpt-oss doesn't): they get the routes to this rank's experts only.

    Same masking as `AllReduceEP`, `transformers/distributed/expert_parallel.py` 5.24.0, with two faults of it mended:
    eager gpt-oss fails there, and a rank whose eager experts got no token leaves the autograd graph and skips the
    backward collectives that the other ranks of its group are in.
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
        run = self._run_own_routes if _is_eager(self._experts) else self._run_masked
        output = run(hidden_states, top_k_index, top_k_weights)
        return output if self._sum is None else self._sum(output)

    def _run_masked(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        elsewhere = self._elsewhere(top_k_index)
        local_ids = torch.where(elsewhere, self.num_local_experts, top_k_index % self.num_local_experts)
        output: Tensor = self.experts_forward(hidden_states, local_ids, top_k_weights.masked_fill(elsewhere, 0.0))
        return output

    def _run_own_routes(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        tokens, slots = (~self._elsewhere(top_k_index)).nonzero(as_tuple=True)
        local_ids = (top_k_index[tokens, slots] % self.num_local_experts).unsqueeze(-1)
        results = self.experts_forward(hidden_states[tokens], local_ids, top_k_weights[tokens, slots].unsqueeze(-1))
        output = torch.zeros_like(hidden_states).index_add(0, tokens, results.to(hidden_states.dtype))
        if torch.is_grad_enabled() and not output.requires_grad:
            output = output + nothing_of(hidden_states, top_k_weights, *self._experts._parameters.values())
        return output

    def _elsewhere(self, top_k_index: Tensor) -> Tensor:
        return top_k_index // self.num_local_experts != self.ep_mesh.get_local_rank()


def _is_eager(experts: nn.Module) -> bool:
    """Whether the module's own forward runs, and none of transformers' experts implementations."""
    config = getattr(experts, "config", None)
    return getattr(config, "_experts_implementation", None) in (None, "eager")


def nothing_of(*tensors: Tensor | None) -> Tensor:
    """Zero, as a sum of no element of `tensors`: with it in the graph each of them gets a gradient of zeros."""
    return torch.stack([tensor.flatten()[:0].sum() for tensor in tensors if tensor is not None]).sum()
