"""Modules that run on local shards of their parameters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.ir.operations import LookupShard, RunDistributed, RunLocal
from planc.program.placements import chunk
from planc.runtime.collectives import hand_over
from planc.runtime.interpreter.application import Application, handles
from planc.runtime.interpreter.forward import Forward
from planc.runtime.placements import to_torch


@handles(RunLocal)
def run_local(operation: RunLocal, application: Application) -> None:
    """Run the module on local shards; a bias of a partial sum is added once, after the sum."""
    around = application.around(operation.module)
    around.local = True
    prefix = f"{operation.module}." if operation.module else ""
    around.added_after.extend(name.removeprefix(prefix) for name in operation.added_after)


@handles(RunDistributed)
def run_distributed(operation: RunDistributed, application: Application) -> None:
    """Run the module under DTensor's own rules, between plain tensors."""
    mesh = application.meshes.of(operation.axis)

    def wrap(inner: Forward) -> Forward:
        def forward(first: Tensor, *args: Any, **kwargs: Any) -> Any:
            source = to_torch(operation.source, first.ndim)
            output = inner(DTensor.from_local(first, mesh, [source], run_check=False), *args, **kwargs)
            return hand_over(output.redistribute(mesh, [to_torch(operation.target, output.ndim)]).to_local())

        return forward

    application.around(operation.module).wrappers.append(wrap)


@handles(LookupShard)
def lookup_shard(operation: LookupShard, application: Application) -> None:
    """Look up the ids whose rows this rank holds; the others give zero. The ranks' results are to be summed."""
    module = application.module(operation.module)
    mesh = application.meshes.of(operation.axis)
    start, end = chunk(operation.size, mesh.size(), mesh.get_local_rank())
    application.around(operation.module).wrappers.append(lambda inner: _lookup(module, inner, start, end))


def _lookup(module: nn.Module, inner: Forward, start: int, end: int) -> Forward:
    """`inner` on ids of the whole vocabulary, where `module` holds the rows from `start` up to `end`."""
    padding: int | None = getattr(module, "padding_idx", None)
    local_padding = padding - start if padding is not None and start <= padding < end else None

    def forward(ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        if start == end:
            weight = module._parameters["weight"]
            assert weight is not None
            # The sum of nothing ties the zeros to the graph: the backward passes of all ranks must be alike.
            return weight.new_zeros((*ids.shape, weight.shape[1])) + weight.sum()
        outside = (ids < start) | (ids >= end)
        with _padding(module, padding, local_padding):
            found = inner((ids - start).masked_fill(outside, 0), *args, **kwargs)
        return found.masked_fill(outside.unsqueeze(-1), 0)

    return forward


@contextmanager
def _padding(module: nn.Module, whole: int | None, local: int | None) -> Iterator[None]:
    """Within, the row whose gradient is dropped is the local one (torch refuses one beyond the local rows)."""
    if whole == local:
        yield
        return
    module.padding_idx = local  # type: ignore[assignment]
    try:
        yield
    finally:
        module.padding_idx = whole  # type: ignore[assignment]
