"""What an implementation of expert parallelism is."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.runtime.errors import ApplicationError


class ExpertImplementation(ABC):
    """Brings the experts of one module their tokens; one instance a module, so it may keep buffers.

    The constructor and the call are those of `EPImplementation` in `transformers/distributed/expert_parallel.py`
    5.24.0: a class written for one works for the other. `experts` already holds only this rank's experts
    (`num_experts` is their number); `ep_mesh` is the group that holds the whole set, `tp_mesh` the ranks that hold the
    same tokens. Raises `ApplicationError` where `needs_shared_batch` is set and the two groups differ.
    """

    needs_shared_batch: ClassVar[bool] = False

    def __init__(self, experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        self.experts_forward = experts.forward
        self.num_local_experts = int(experts.num_experts)  # type: ignore[arg-type]
        self.ep_mesh, self.tp_mesh = ep_mesh, tp_mesh
        self.ep_group, self.tp_group = ep_mesh.get_group(), tp_mesh.get_group()
        ranks = [dist.get_process_group_ranks(group) for group in (self.tp_group, self.ep_group)]
        self.shares_batch = ranks[0] == ranks[1]
        if self.needs_shared_batch and not self.shares_batch:
            raise ApplicationError(
                f"{type(self).__name__} needs every rank of an expert group to hold the same batch, "
                f"but ep_size={ep_mesh.size()} and tp_size={tp_mesh.size()}"
            )

    @abstractmethod
    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The weighted expert output of this rank's tokens.

        `hidden_states` [tokens, hidden], `top_k_index` [tokens, k] with global expert ids, `top_k_weights`
        [tokens, k]; returns [tokens, hidden]. Gradients of all three inputs must come back complete.
        """
