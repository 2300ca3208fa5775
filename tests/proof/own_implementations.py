"""Expert implementations that users could write; a test registers them."""

from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from planc.runtime.experts.all_to_all import AllToAll
from planc.runtime.experts.implementation import ExpertImplementation


class CountedAllToAll(AllToAll):
    """The usual exchange, of which every call is counted."""

    calls: ClassVar[int] = 0

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        type(self).calls += 1
        return super().__call__(hidden_states, top_k_index, top_k_weights)


class MaskedSum(ExpertImplementation):
    """From scratch, without gradients: every rank runs its experts on all tokens, and the outputs are summed."""

    needs_shared_batch = True

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        first = self.ep_mesh.get_local_rank() * self.num_local_experts
        own = (top_k_index >= first) & (top_k_index < first + self.num_local_experts)
        ids = torch.where(own, top_k_index - first, 0)
        output: Tensor = self.experts_forward(hidden_states, ids, top_k_weights * own)
        dist.all_reduce(output, group=self.ep_group)
        return output
