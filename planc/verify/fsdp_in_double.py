"""FSDP2 on copies in double precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives


@contextmanager
def gradients_divided_as_in_single() -> Iterator[None]:
    """Let FSDP2 divide gradients in `float64` as it does those in `float32`.

    torch 2.13.0 takes every type but `float32` and `bfloat16` for one that may overflow, divides before and after the
    reduction, and divides once more where a group has one rank and a factor of its own, as experts on every rank have
    (`_get_gradient_divide_factors` and `foreach_reduce` in `distributed/fsdp/_fully_shard/_fsdp_collectives.py`).
    """
    original: Any = _fsdp_collectives._get_gradient_divide_factors

    def in_single(reduce_scatter_group: Any, all_reduce_group: Any, reduce_dtype: torch.dtype, *rest: Any) -> Any:
        dtype = torch.float32 if reduce_dtype == torch.float64 else reduce_dtype
        return original(reduce_scatter_group, all_reduce_group, dtype, *rest)

    _fsdp_collectives._get_gradient_divide_factors = in_single  # type: ignore[assignment]
    try:
        yield
    finally:
        _fsdp_collectives._get_gradient_divide_factors = original
