"""What a function gives that asks for data, on a device that has none.

Watching needs one plausible path through the model, not its numbers: conditions hold, indices are the first ones, and a
mask selects a few rows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

_ROWS = 2


def answer(name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`func(*args, **kwargs)`, or a plausible answer where the function needs data that the meta device hasn't."""
    tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if tensor is not None and tensor.is_meta:
        if name in _ANSWERS:
            return _ANSWERS[name](tensor)
        if name == "where" and len(args) == 1:
            return _nonzero(tensor).unbind(1)
        if name in ("__getitem__", "__setitem__") and _is_mask(args[1]):
            return _masked(name, func, args)
        if name == "__getitem__" and _is_scalar(args[1]):
            return func(args[0], 0)
        if name == "masked_select":
            return tensor.new_empty(_ROWS)
    return func(*args, **kwargs)


def _condition(tensor: torch.Tensor) -> bool:
    return True


def _number(tensor: torch.Tensor) -> int | float | bool:
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 0


def _numbers(tensor: torch.Tensor) -> Any:
    if tensor.dim() == 0:
        return _number(tensor)
    return [_numbers(row) for row in tensor]


def _nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty((_ROWS, max(tensor.dim(), 1)), dtype=torch.long)


def _is_scalar(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype is not torch.bool


def _is_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, torch.Tensor) and part.dtype is torch.bool for part in parts)


def _masked(name: str, func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Rows chosen by a mask: as many as `_ROWS`, chosen by number."""
    if name == "__setitem__":
        return None
    parts: list[Any] = []
    for part in args[1] if isinstance(args[1], tuple) else (args[1],):
        if isinstance(part, torch.Tensor) and part.dtype is torch.bool:
            parts.extend(_nonzero(part).unbind(1))
        else:
            parts.append(part)
    return func(args[0], tuple(parts))


_ANSWERS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "__bool__": _condition,
    "item": _number,
    "__int__": lambda tensor: int(_number(tensor)),
    "__index__": lambda tensor: int(_number(tensor)),
    "__float__": lambda tensor: float(_number(tensor)),
    "tolist": _numbers,
    "nonzero": _nonzero,
}
