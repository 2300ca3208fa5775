"""The norm of gradients that lie on several meshes, and parameters by mesh.

Under tensor parallelism some parameters are DTensors and others plain tensors, and experts lie on a mesh of their own:
`torch.nn.utils.clip_grad_norm_` and optimizers with `foreach=True` or `fused=True` take tensors of one kind only
(torch 2.13.0: "got mixed torch.Tensor and DTensor").
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from planc.runtime.errors import RunError

# Over which mesh dims a parameter is split, in the order in which their parts are put together.
_Split = tuple[tuple[str, dist.ProcessGroup], ...]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients of `parameters` in place so that their norm over all ranks is at most `max_norm`.

    As `torch.nn.utils.clip_grad_norm_`, for parameters of any layout at once; returns the norm before, a scalar tensor
    in float32 or wider, the same on every rank. Each shard is read where it lies, and one number for each mesh travels.
    Every rank must call it with the same parameters. Raises RuntimeError for a norm that isn't finite, with
    `error_if_nonfinite`, and RunError for gradients that are still partial sums.
    """
    every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    norm = _norm(every, float(norm_type))
    if error_if_nonfinite and not bool(torch.isfinite(norm)):
        raise RuntimeError(f"the gradients' norm of order {float(norm_type):g} is {float(norm)}: nothing was clipped")
    scale = torch.clamp(float(max_norm) / (norm + 1e-6), max=1.0)
    for local in _locals(every):
        local.mul_(scale.to(local.device, local.dtype))
    return norm


def parameter_groups(parameters: Iterable[Any]) -> list[dict[str, Any]]:
    """Split parameters, or an optimizer's parameter groups, so that every group lies on one mesh.

    Takes tensors, or mappings with `params` whose other settings are kept. Optimizers work on a group at a time: with
    such groups `foreach=True` and `fused=True` work at every layout. The order within a group is kept.
    """
    every = list(parameters)
    given: list[Mapping[str, Any]] = every if every and isinstance(every[0], Mapping) else [{"params": every}]
    return [{**group, "params": alike} for group in given for alike in _by_mesh(group["params"])]


def _by_mesh(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    meshes: dict[Any, list[Tensor]] = defaultdict(list)
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        meshes[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    yield from meshes.values()


def _norm(parameters: list[Tensor], order: float) -> Tensor:
    # By the parameter, not by its gradient: a rank without one takes part in the reductions all the same.
    splits: dict[tuple[str, ...], _Split] = {}
    shards: dict[tuple[str, ...], list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        split = _split(parameter)
        names = tuple(name for name, _ in split)
        splits[names] = split
        shards[names] += [local for local in _locals([parameter]) if local.numel()]
    device = next((p.device for p in parameters), torch.device("cpu"))
    parts = [_over_ranks(_of_tensors(shards[n], order, device), splits[n], order) for n in sorted(splits)]
    return _together(torch.stack(parts), order) if parts else torch.zeros((), device=device)


def _split(parameter: Tensor) -> _Split:
    if not isinstance(parameter, DTensor):
        return ()
    mesh, names = parameter.device_mesh, parameter.device_mesh.mesh_dim_names or ()
    if any(placement.is_partial() for placement in parameter.placements):
        raise RunError("a gradient that is still a partial sum has no norm: reduce it first")
    return tuple(
        (names[dim] if names else str(dim), mesh.get_group(dim))
        for dim, placement in enumerate(parameter.placements)
        if not placement.is_replicate() and mesh.size(dim) > 1
    )


def _locals(parameters: Iterable[Tensor]) -> Iterator[Tensor]:
    """What this rank holds of each gradient: views."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            yield gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _of_tensors(shards: list[Tensor], order: float, device: torch.device) -> Tensor:
    if not shards:
        return torch.zeros((), device=device)
    norms = [torch.linalg.vector_norm(s, order, dtype=torch.promote_types(s.dtype, torch.float32)) for s in shards]
    return _together(torch.stack([norm.to(device) for norm in norms]), order)


def _over_ranks(norm: Tensor, split: _Split, order: float) -> Tensor:
    powered = norm if math.isinf(order) else norm.pow(order)
    for _, group in split:
        dist.all_reduce(powered, dist.ReduceOp.MAX if math.isinf(order) else dist.ReduceOp.SUM, group=group)
    return powered if math.isinf(order) else powered.pow(1.0 / order)


def _together(norms: Tensor, order: float) -> Tensor:
    whole: Tensor = torch.linalg.vector_norm(norms, order)
    return whole
