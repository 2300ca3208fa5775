"""Tensors that hold no values: what is done to them is recorded, to be done later to the parts that a rank needs.

transformers' weight converters are functions on tensors. Run on recorded ones, they say how a parameter is made of
the tensors of a checkpoint, and nothing is read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from planc.runtime.checkpoint.expressions import Concatenation, Expression, Leaf, Narrowing, Permutation, reshaped

aten = torch.ops.aten


class NotFollowedError(Exception):
    """An operation that isn't just a movement of elements."""


class Recorded(Tensor):
    """A tensor without values. `expression` says how it is made; `meta` has its shape, strides and storage."""

    expression: Expression
    meta: Tensor

    @staticmethod
    def __new__(cls, expression: Expression, meta: Tensor) -> "Recorded":
        made: Recorded = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device=torch.device("cpu"),
        )
        made.expression, made.meta = expression, meta
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Recorded({tuple(self.shape)}, {self.dtype}, of {', '.join(self.expression.leaves)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        follow = FOLLOWED.get(func.overloadpacket)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if follow is None or not all(isinstance(leaf, Recorded) for leaf in inputs):
            raise NotFollowedError(str(func))
        plain = tree_map_only(Recorded, lambda recorded: recorded.meta, (args, kwargs or {}))
        metas = func(*plain[0], **plain[1])
        if isinstance(metas, Tensor):
            return Recorded(follow(args, metas), metas)
        return [Recorded(e, m) for e, m in zip(follow(args, metas), metas, strict=True)]


def recorded(name: str, shape: Sequence[int], dtype: torch.dtype) -> Recorded:
    """A stored tensor, in one contiguous storage of its own."""
    return Recorded(Leaf(name, tuple(shape)), torch.empty(tuple(shape), dtype=dtype, device="meta"))


Follow = Callable[[tuple[Any, ...], Any], Any]


def _same(args: tuple[Any, ...], meta: Tensor) -> Expression:
    return _of(args[0])


def _reshape(args: tuple[Any, ...], meta: Tensor) -> Expression:
    return reshaped(_of(args[0]), meta.shape)


def _concatenate(args: tuple[Any, ...], meta: Tensor) -> Expression:
    dim = _dim(args, 1) % meta.ndim
    return _flat(tuple(_of(part) for part in args[0]), dim)


def _stack(args: tuple[Any, ...], meta: Tensor) -> Expression:
    dim = _dim(args, 1) % meta.ndim
    shape = (*meta.shape[:dim], 1, *meta.shape[dim + 1 :])
    return _flat(tuple(reshaped(_of(part), shape) for part in args[0]), dim)


def _flat(parts: tuple[Expression, ...], dim: int) -> Expression:
    return parts[0] if len(parts) == 1 else Concatenation(parts, dim)


def _split(args: tuple[Any, ...], metas: Sequence[Tensor]) -> list[Expression]:
    part, dim, start, found = _of(args[0]), _dim(args, 2), 0, []
    dim %= len(part.shape)
    for meta in metas:
        length = int(meta.shape[dim])
        found.append(_narrow(part, dim, start, length))
        start += length
    return found


def _slice(args: tuple[Any, ...], meta: Tensor) -> Expression:
    part, dim = _of(args[0]), _dim(args, 1)
    dim %= len(part.shape)
    start, step = args[2] if len(args) > 2 and args[2] is not None else 0, args[4] if len(args) > 4 else 1
    if step != 1:
        raise NotFollowedError("a slice with a step")
    first = min(max(start + part.shape[dim] if start < 0 else start, 0), part.shape[dim])
    return _narrow(part, dim, first, int(meta.shape[dim]))


def _narrow(part: Expression, dim: int, start: int, length: int) -> Expression:
    return part if length == part.shape[dim] else Narrowing(part, dim, start, length)


def _select(args: tuple[Any, ...], meta: Tensor) -> Expression:
    part = _of(args[0])
    dim = args[1] % len(part.shape)
    return reshaped(_narrow(part, dim, args[2] % part.shape[dim], 1), meta.shape)


def _unbind(args: tuple[Any, ...], metas: Sequence[Tensor]) -> list[Expression]:
    part, dim = _of(args[0]), _dim(args, 1)
    dim %= len(part.shape)
    return [reshaped(_narrow(part, dim, index, 1), meta.shape) for index, meta in enumerate(metas)]


def _transpose(args: tuple[Any, ...], meta: Tensor) -> Expression:
    dims = list(range(meta.ndim))
    first, second = (args[1] % meta.ndim, args[2] % meta.ndim) if len(args) > 1 else (0, meta.ndim - 1)
    dims[first], dims[second] = dims[second], dims[first]
    return Permutation(_of(args[0]), tuple(dims))


def _permute(args: tuple[Any, ...], meta: Tensor) -> Expression:
    return Permutation(_of(args[0]), tuple(dim % meta.ndim for dim in args[1]))


def _of(part: Recorded) -> Expression:
    return part.expression


def _dim(args: tuple[Any, ...], place: int) -> int:
    return int(args[place]) if len(args) > place else 0


FOLLOWED: dict[Any, Follow] = {
    **dict.fromkeys((aten.alias, aten.detach, aten.clone, aten.contiguous), _same),
    **dict.fromkeys(
        (aten.view, aten._unsafe_view, aten.reshape, aten.unsqueeze, aten.squeeze, aten._reshape_alias), _reshape
    ),
    aten.cat: _concatenate,
    aten.stack: _stack,
    **dict.fromkeys((aten.split, aten.split_with_sizes), _split),
    aten.slice: _slice,
    aten.select: _select,
    aten.unbind: _unbind,
    **dict.fromkeys((aten.transpose, aten.t), _transpose),
    aten.permute: _permute,
}
