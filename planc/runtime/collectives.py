"""Changes of placement of plain local tensors, with their gradients.

Every change is one of six conversions forward and another one backward. A gradient of a replicated or partial tensor
is replicated when it is complete and partial when each rank holds a summand; that of a shard is sharded like it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planc.layouts.placement import Partial, Placement, Replicate, Shard
from planc.program.placements import chunk
from planc.runtime.errors import ApplicationError

# torch 2.13 gave these new names, and warns at every use of the old ones.
_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# (local tensor, whole extent of the sharded dim or None) to a local tensor
Conversion = Callable[[Tensor, int | None], Tensor]


def all_reduce(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum of `tensor` over the ranks of `group`, as a new tensor."""
    result = tensor.contiguous()
    if result is tensor:
        result = tensor.clone()
    dist.all_reduce(result, group=group)
    return result


def all_gather(tensor: Tensor, dim: int, group: dist.ProcessGroup, size: int | None) -> Tensor:
    """The chunks of all ranks along `dim`, joined in rank order; `size` is the extent of the whole.

    The ranks may hold less than an even share, or nothing. Without `size` they exchange their widths first.
    """
    count = dist.get_world_size(group)
    if size is None:
        widths = _exchange_widths(tensor, dim, group)
    else:
        widths = [end - start for start, end in (chunk(size, count, rank) for rank in range(count))]
    width, own = max(widths), tensor.shape[dim]
    local = tensor.contiguous()
    if own < width:
        padding = local.new_zeros((*local.shape[: dim % local.ndim], width - own, *local.shape[dim % local.ndim + 1 :]))
        local = torch.cat([local, padding], dim)
    gathered = local.new_empty((count * local.shape[0], *local.shape[1:]))
    _gather_single(gathered, local, group=group)
    blocks = gathered.view(count, *local.shape)
    # Blocks are joined where they lie: moving the dim to the front and back would transpose the whole twice.
    return torch.cat([block.narrow(dim, 0, w) for block, w in zip(blocks, widths, strict=True)], dim)


def _exchange_widths(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> list[int]:
    own = torch.tensor([tensor.shape[dim]], device=tensor.device)
    widths = torch.empty(dist.get_world_size(group), dtype=own.dtype, device=tensor.device)
    _gather_single(widths, own, group=group)
    return [int(width) for width in widths.tolist()]


def split(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This rank's chunk of `tensor` along `dim`."""
    start, end = chunk(tensor.shape[dim], dist.get_world_size(group), dist.get_rank(group))
    return tensor.narrow(dim, start, end - start)


def reduce_scatter(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This rank's chunk along `dim` of the sum over all ranks."""
    count = dist.get_world_size(group)
    if tensor.shape[dim] % count or dist.get_backend(group) == "gloo":
        return split(all_reduce(tensor, group), dim, group).contiguous()
    source = tensor.movedim(dim, 0).contiguous()
    result = source.new_empty((source.shape[0] // count, *source.shape[1:]))
    _reduce_scatter_single(result, source, group=group)
    return result.movedim(0, dim).contiguous()


def conversion(source: Placement, target: Placement, group: dist.ProcessGroup) -> Conversion | None:
    """How a local tensor gets from `source` to `target`; None where nothing is to be done.

    Raises `ApplicationError` for a change that no local tensor can make (a replicated value has no summands).
    """
    if source == target:
        return None
    if isinstance(source, Partial) and isinstance(target, Replicate):
        return lambda tensor, size: all_reduce(tensor, group)
    if isinstance(source, Partial) and isinstance(target, Shard):
        return lambda tensor, size: reduce_scatter(tensor, target.dim, group)
    if isinstance(source, Replicate) and isinstance(target, Shard):
        return lambda tensor, size: split(tensor, target.dim, group).contiguous()
    if isinstance(source, Shard) and isinstance(target, Replicate):
        return lambda tensor, size: all_gather(tensor, source.dim, group, size)
    if isinstance(source, Shard) and isinstance(target, Shard):
        return lambda tensor, size: split(all_gather(tensor, source.dim, group, size), target.dim, group).contiguous()
    raise ApplicationError(f"no local tensor can go from {source} to {target}")


def gradient_placement(placement: Placement) -> Placement:
    """What the complete gradient of a tensor in `placement` is: a shard's is sharded, any other is replicated."""
    return placement if isinstance(placement, Shard) else Replicate()


@dataclass(frozen=True)
class Change:
    """A change of placement and of its gradient, callable on a local tensor. `size` as in the operations.

    `owned`: nobody else reads the memory of what comes out, so that whoever gets it may change it in place.
    """

    forward: Conversion | None
    backward: Conversion | None
    source_dim: int | None
    target_dim: int | None
    size: int | None
    owned: bool

    def __call__(self, tensor: Tensor) -> Tensor:
        if torch.is_grad_enabled() and tensor.requires_grad:
            changed: Tensor = _Changed.apply(tensor, self)  # type: ignore[no-untyped-call]
            return changed
        return tensor if self.forward is None else self.forward(tensor, self.size)


def change(
    source: Placement,
    target: Placement,
    gradient: Placement,
    group: dist.ProcessGroup,
    size: int | None = None,
    handed_over: bool = False,
) -> Change | None:
    """The change from `source` to `target` whose gradient comes back as `gradient`; None where nothing changes.

    `handed_over`: the tensor is a module's output, which nobody reads but whoever gets it.
    """
    forward = conversion(source, target, group)
    backward = conversion(gradient, gradient_placement(source), group)
    if forward is None and backward is None:
        return None
    source_dim = source.dim if isinstance(source, Shard) else None
    target_dim = gradient.dim if isinstance(gradient, Shard) else None
    # Only the chunk of a whole may lie in the memory of what it was cut from; what ranks exchange is new.
    owned = handed_over or (forward is not None and not isinstance(source, Replicate))
    return Change(forward, backward, source_dim, target_dim, size, owned)


def hand_over(tensor: Tensor) -> Tensor:
    """The same memory, as a tensor that may be changed in place; autograd knows it by its producer alone.

    What an autograd function hands on as a view can't be changed in place in training, and a module's output may be.
    """
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    handed: Tensor = _HandedOver.apply(tensor)  # type: ignore[no-untyped-call]
    return handed


class _HandedOver(torch.autograd.Function):
    """Identity."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Changed(torch.autograd.Function):
    """A `Change` in the autograd graph."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, made: Change) -> Tensor:
        # A caller's tensor stays a view, which torch refuses to change in place: the caller may read it again, and its
        # gradient would not know of the change.
        result = tensor.view_as(tensor) if made.forward is None else made.forward(tensor, made.size)
        # The gradient of a shard is gathered to the extent that the whole had when it was split.
        whole = tensor if made.source_dim is None else result
        ctx.size = None if made.target_dim is None else whole.shape[made.target_dim]
        ctx.made = made
        # Without `detach` torch takes a view that was made in here for one of somebody else's tensor.
        return result.detach() if made.owned else result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        made: Change = ctx.made
        return (gradient if made.backward is None else made.backward(gradient, ctx.size)), None


class SumGradientOfLastFeatures(torch.autograd.Function):
    """Identity of a module's output whose gradient is summed over `group` in the last `features` features."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, features: int, group: dist.ProcessGroup) -> Tensor:
        ctx.features, ctx.group = features, group
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        start = gradient.shape[-1] - ctx.features
        summed = all_reduce(gradient[..., start:], ctx.group)
        return torch.cat([gradient[..., :start], summed], dim=-1), None, None
