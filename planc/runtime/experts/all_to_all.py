"""Each (token, expert) pair travels to the rank that holds the expert, and its result back."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.layouts.placement import Replicate, Shard
from planc.runtime.collectives import change
from planc.runtime.experts.implementation import ExpertImplementation


@dataclass(frozen=True)
class Routes:
    """Where this rank's rows went: `order` sorts (token, k) pairs by expert, sizes are rows per rank of the group."""

    order: Tensor
    sent: list[int]
    received: list[int]


class AllToAll(ExpertImplementation):
    """Two all-to-alls and one host synchronisation a layer; any layout.

    The ranks of a TP group hold the same tokens: each takes its share of the rows (uneven and empty shares are legal)
    and the results are gathered over the TP group again. Same exchange as `AllToAllEP`,
    `transformers/distributed/expert_parallel.py` 5.24.0.
    """

    def __init__(self, experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        whole, rows = Replicate(), Shard(0)
        self._take_share = change(whole, rows, rows, self.tp_group) if tp_mesh.size() > 1 else None

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        num_tokens = hidden_states.shape[0]
        if self._take_share is not None:
            hidden_states = self._take_share(hidden_states)
            top_k_index = self._take_share(top_k_index)
            top_k_weights = self._take_share(top_k_weights)
        rows, expert_ids, routes = self._dispatch(hidden_states, top_k_index)
        output = self._combine(self._run(rows, expert_ids), routes, top_k_weights)
        if self._take_share is None:
            return output
        gather = change(Shard(0), Replicate(), Replicate(), self.tp_group, size=num_tokens)
        return output if gather is None else gather(output)

    def _dispatch(self, hidden_states: Tensor, top_k_index: Tensor) -> tuple[Tensor, Tensor, Routes]:
        """The rows that this rank's experts run on, their local expert ids, and how they came here."""
        ranks, expert_ids = self.ep_mesh.size(), top_k_index.reshape(-1)
        order = torch.argsort(expert_ids, stable=True)
        sent = torch.bincount(expert_ids, minlength=ranks * self.num_local_experts).view(ranks, -1)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.ep_group)
        # The layer's one host synchronisation.
        sizes = torch.stack([sent.sum(dim=1), received.sum(dim=1)]).tolist()
        routes = Routes(order, sizes[0], sizes[1])
        tokens = hidden_states[order // top_k_index.shape[-1]]
        rows = exchange(tokens, routes.received, routes.sent, self.ep_group)
        local_ids = torch.arange(self.num_local_experts, device=rows.device).repeat(ranks)
        local_ids = local_ids.repeat_interleave(received.reshape(-1), output_size=sum(routes.received))
        return rows, local_ids.unsqueeze(-1), routes

    def _run(self, rows: Tensor, expert_ids: Tensor) -> Tensor:
        """This rank's experts, each row once, with unit weights: the sender applies the routing weights."""
        if rows.shape[0]:
            results: Tensor = self.experts_forward(rows, expert_ids, torch.ones_like(expert_ids, dtype=rows.dtype))
            return results
        # One row of zeros keeps the experts in the graph: this rank still owes the backward exchange and its part of
        # the experts' gradient reduction.
        row = rows.sum(dim=0, keepdim=True)
        result: Tensor = self.experts_forward(row, expert_ids.new_zeros((1, 1)), row.new_ones((1, 1)))
        return result[:0]

    def _combine(self, results: Tensor, routes: Routes, top_k_weights: Tensor) -> Tensor:
        returned = exchange(results, routes.sent, routes.received, self.ep_group)
        unsorted = torch.empty_like(returned).index_copy(0, routes.order, returned)
        per_token = unsorted.view(*top_k_weights.shape, returned.shape[-1])
        return (per_token * top_k_weights.unsqueeze(-1)).sum(dim=1)


def exchange(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """Send `sent[r]` consecutive rows to each rank r and get `received[r]` from it; differentiable."""
    if torch.is_grad_enabled() and rows.requires_grad:
        exchanged: Tensor = _Exchange.apply(rows, received, sent, group)  # type: ignore[no-untyped-call]
        return exchanged
    return _all_to_all(rows, received, sent, group)


def _all_to_all(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
    return result


class _Exchange(torch.autograd.Function):
    """An all-to-all whose gradient takes the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sizes, ctx.group = (sent, received), group
        return _all_to_all(rows, received, sent, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        received, sent = ctx.sizes
        return _all_to_all(gradient, received, sent, ctx.group), None, None, None
