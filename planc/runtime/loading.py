"""Weights into a sharded model: each rank reads its own shards only."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.layouts.placement import Shard, StridedShard
from planc.program.placements import Region, whole
from planc.runtime.checkpoint.converted import ConvertedSource, is_optional, may_be_surplus
from planc.runtime.errors import CheckpointError
from planc.runtime.interpreter.holders import Holders
from planc.runtime.placements import from_torch, held_region
from planc.runtime.sources import TensorSource

# (tensors done, tensors in all)
Progress = Callable[[int, int], None]
# Mesh axes along which FSDP2 shards.
FSDP_AXES = ("fsdp", "efsdp")
# How many names a message lists.
LISTED = 5


@dataclass(frozen=True)
class Loaded:
    """What loading did on this rank. `unexpected` are tensors of the source that the model has no place for."""

    bytes_read: int
    tensors: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


def load_weights(
    model: nn.Module,
    source: TensorSource,
    device: torch.device,
    initialise_missing: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Fill the parameters and persistent buffers of `model`, which may be on the meta device and sharded already.

    Tensors are converted to the dtypes of the model. Tied parameters need one of their names. Raises
    `CheckpointError` that names the tensor when one is missing (unless `initialise_missing`, or the model's class
    says that it may be) or has another shape; both are looked up before the first byte is read. Buffers are left
    alone where they may be missing.
    """
    holders = Holders(model)
    kept = persistent_buffers(model)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    found = {names: next((name for name in names if name in source), None) for names, _ in holders}
    if not initialise_missing:
        _refuse_missing(model, found, buffers, source)
    _refuse_others(found, holders, buffers, source)
    before = source.bytes_read
    for done, (names, parameter) in enumerate(holders):
        if (name := found[names]) is not None:
            shard = local_shard(source, name, parameter, device)
            _refuse_untied(source, names, name, parameter, shard)
            holders.replace(parameter, as_parameter(parameter, shard))
        if progress is not None:
            progress(done + 1, len(found))
    for name, buffer in buffers.items():
        if name in source:
            put_buffer(model, name, source.read(name, whole(tuple(buffer.shape))).to(device, buffer.dtype, copy=True))
    missing = tuple(names[0] for names, name in found.items() if name is None)
    unexpected = surplus(model, source, {name for names in found for name in names} | set(buffers))
    return Loaded(source.bytes_read - before, len(found), missing, unexpected)


def surplus(model: nn.Module, source: TensorSource, names: Set[str]) -> tuple[str, ...]:
    """What `source` holds beyond `names`, but for what the model's class says may be there."""
    if isinstance(source, ConvertedSource):
        return tuple(name for name in source.unexpected if not may_be_surplus(model, name))
    return tuple(sorted(set(source) - names))


def _refuse_missing(
    model: nn.Module, found: Mapping[tuple[str, ...], str | None], buffers: Mapping[str, Tensor], source: TensorSource
) -> None:
    missing = [names[0] for names, name in found.items() if name is None]
    missing += [name for name in buffers if name not in source]
    if missing := [name for name in missing if not is_optional(model, name)]:
        listed = ", ".join(f"`{name}`" for name in missing[:LISTED])
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        count = len(found) + len(buffers)
        raise CheckpointError(f"the checkpoint lacks {len(missing)} of the model's {count} tensors: {listed}{more}")


def _refuse_others(
    found: Mapping[tuple[str, ...], str | None],
    holders: Holders,
    buffers: Mapping[str, Tensor],
    source: TensorSource,
) -> None:
    """Refuse tensors of another shape, and those whose values mean something else than the model's."""
    tensors: list[tuple[str | None, Tensor]] = [(found[names], parameter) for names, parameter in holders]
    for name, tensor in [*tensors, *buffers.items()]:
        if name is None or name not in source:
            continue
        if source.shape(name) != tuple(tensor.shape):
            shapes = f"has shape {list(source.shape(name))}, the model {list(tensor.shape)}"
            raise CheckpointError(f"{source.where(name)} {shapes}")
        stored = source.dtype(name)
        if has_other_meaning(stored, tensor.dtype):
            dtypes = f"holds {stored}, the model {tensor.dtype}".replace("torch.", "")
            raise CheckpointError(f"{source.where(name)} {dtypes}: quantised weights are not converted")


def has_other_meaning(stored: torch.dtype, own: torch.dtype) -> bool:
    """Whether values of the dtype `stored` can't just be cast to the model's `own`."""
    return stored != own and (_is_coded(stored) or _is_coded(own))


def needed_names(model: nn.Module) -> list[tuple[str, ...]]:
    """What a checkpoint must hold: the names of each parameter, of which it needs one, and persistent buffers."""
    return [*(names for names, _ in Holders(model)), *((name,) for name in sorted(persistent_buffers(model)))]


def _is_coded(dtype: torch.dtype) -> bool:
    """Whether values of `dtype` are usually codes: a plain cast of them gives no weights."""
    return not dtype.is_floating_point or dtype.itemsize == 1


def _refuse_untied(source: TensorSource, names: tuple[str, ...], taken: str, parameter: Tensor, shard: Tensor) -> None:
    """Refuse a checkpoint with several values for parameters that the model ties into one."""
    for name in names:
        if name not in source or source.where(name) == source.where(taken):
            continue
        if source.shape(name) != tuple(parameter.shape) or not torch.equal(
            local_shard(source, name, parameter, shard.device), shard
        ):
            raise CheckpointError(
                f"{source.where(name)} differs from {source.where(taken)}, but the model ties the two: set "
                "`tie_word_embeddings` to false in its config if they are meant to differ"
            )


def region_of(parameter: Tensor) -> Region:
    """The part of a parameter that this rank holds.

    FSDP2 cuts what tensor and expert parallelism left, though its axis comes first in the mesh. torch 2.13.0 writes
    that as a strided shard of the outer axis, which names the same elements only where every cut is even.
    """
    if not isinstance(parameter, DTensor):
        return whole(tuple(parameter.shape))
    mesh = parameter.device_mesh
    coordinate, names = mesh.get_coordinate(), mesh.mesh_dim_names or ()
    wrapped = [place for place, name in enumerate(names) if name in FSDP_AXES]
    if coordinate is None or not wrapped:
        return held_region(parameter.shape, mesh, parameter.placements)
    region = whole(tuple(parameter.shape))
    for place in [place for place in range(mesh.ndim) if place not in wrapped] + wrapped:
        placement = from_torch(parameter.placements[place])
        if place in wrapped and isinstance(placement, StridedShard):
            placement = Shard(placement.dim)
        region = region.shard(placement, int(mesh.size(place)), int(coordinate[place]))
    return region


def local_shard(source: TensorSource, name: str, parameter: Tensor, device: torch.device) -> Tensor:
    """This rank's shard of `parameter`, read from the tensor `name` of `source`, in the parameter's dtype."""
    block = source.read(name, region_of(parameter))
    # Blocks of a memory-mapped file are views of it: copy, so that the file can be closed.
    return block.to(device, parameter.dtype, copy=True).contiguous()


def as_parameter(like: nn.Parameter, local: Tensor, initialised: bool = True) -> nn.Parameter:
    """A parameter placed as `like` that holds `local` on this rank, marked as initialised for transformers."""
    data: Tensor = local
    if isinstance(like, DTensor):
        data = DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )
    made = nn.Parameter(data, requires_grad=like.requires_grad)
    # transformers 5.24.0 leaves tensors with this mark alone when it initialises the rest (`initialization.py`).
    if initialised:
        made._is_hf_initialized = True  # type: ignore[attr-defined]
    return made


def persistent_buffers(model: nn.Module) -> set[str]:
    """The names of the buffers that a checkpoint holds."""
    names = set()
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                names.add(f"{prefix}.{name}" if prefix else name)
    return names


def put_buffer(model: nn.Module, name: str, value: Tensor) -> None:
    """Replace a buffer by full name."""
    owner, _, own = name.rpartition(".")
    value._is_hf_initialized = True  # type: ignore[attr-defined]
    model.get_submodule(owner)._buffers[own] = value


def materialise_rest(model: nn.Module, device: torch.device) -> None:
    """Give what is still on the meta device a place on `device`, and the values that the model itself gives it.

    Rotary frequencies and other buffers that no checkpoint holds, parameters that this one lacks. As transformers
    5.24.0 does in `_move_missing_keys_from_meta_to_device` and `_initialize_missing_keys`. Raises `CheckpointError`
    when something is left and the model has no `initialize_weights`.
    """
    left = _move_meta_parameters(model, device) + _move_meta_buffers(model, device)
    if not left:
        return
    initialise = getattr(model, "initialize_weights", None)
    if initialise is None:
        listed = ", ".join(f"`{name}`" for name in left[:LISTED])
        raise CheckpointError(f"no checkpoint holds {listed}, and the model doesn't say how to fill them")
    for module in model.modules():
        module.__dict__.pop("_is_hf_initialized", None)
    initialise()


def _move_meta_parameters(model: nn.Module, device: torch.device) -> list[str]:
    holders, moved = Holders(model), []
    for names, parameter in holders:
        local: Tensor = parameter._local_tensor if isinstance(parameter, DTensor) else parameter
        if local.is_meta:
            made = as_parameter(parameter, torch.empty_like(local, device=device).detach(), initialised=False)
            holders.replace(parameter, made)
            moved.append(names[0])
    return moved


def _move_meta_buffers(model: nn.Module, device: torch.device) -> list[str]:
    moved = []
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device=device)
                moved.append(f"{prefix}.{name}" if prefix else name)
    return moved


def bytes_held(model: nn.Module) -> int:
    """The bytes of this rank's parameters and buffers, shared ones once."""
    seen: dict[int, int] = {}
    tensors: Sequence[Tensor] = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        local: Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        seen[id(tensor)] = local.numel() * local.element_size()
    return sum(seen.values())
