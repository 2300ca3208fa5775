"""`grouped_mm` in double precision, which torch 2.13.0 has no kernel for."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor) -> Tensor:
    """Rows of `mat_a` `[rows, in]` times the matrix of their group in `mat_b` `[groups, in, out]`.

    `offs` are the ends of the groups. Rows after the last end, and their gradients, are not a number: the real kernel
    leaves them undefined.
    """
    result: Tensor = _GroupedMm.apply(mat_a, mat_b, offs)  # type: ignore[no-untyped-call]
    return result


class _GroupedMm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> Tensor:
        ctx.save_for_backward(mat_a, mat_b, offs)
        output = mat_a.new_full((mat_a.shape[0], mat_b.shape[2]), torch.nan)
        for group, rows in _groups(offs):
            output[rows] = mat_a[rows] @ mat_b[group]
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        mat_a, mat_b, offs = ctx.saved_tensors
        of_a, of_b = torch.full_like(mat_a, torch.nan), torch.zeros_like(mat_b)
        for group, rows in _groups(offs):
            of_a[rows] = gradient[rows] @ mat_b[group].T
            of_b[group] = mat_a[rows].T @ gradient[rows]
        return of_a, of_b, None


def _groups(offs: Tensor) -> Iterator[tuple[int, slice]]:
    start = 0
    for group, end in enumerate(offs.tolist()):
        yield group, slice(start, end)
        start = end
