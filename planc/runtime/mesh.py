"""The device meshes of a layout: two views of the same ranks, as transformers 5.24.0 builds them.

Source: `transformers/distributed/utils.py`, `initialize_distributed_mesh` and `TransformersDeviceMesh`.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from planc.layouts.layout import DENSE_AXES, EXPERT_AXES, Axis, Layout
from planc.runtime.errors import ApplicationError

# `transformers/distributed/utils.py`, `DISTRIBUTED_BACKEND_MAP`.
BACKENDS = {"cuda": "nccl", "cpu": "gloo", "xpu": "xccl", "hpu": "hccl"}


@dataclass(frozen=True)
class Meshes:
    """The dense view `(pp, dp_replicate, fsdp, tp)` and the expert view `(pp, dp_replicate, efsdp, ep)`."""

    dense: DeviceMesh
    expert: DeviceMesh
    # Cutting a submesh takes a millisecond, and every operation asks for one.
    _known: dict[tuple[Axis, ...], DeviceMesh] = field(default_factory=dict, compare=False, repr=False)

    def of(self, *axes: Axis) -> DeviceMesh:
        """The submesh of `axes`, in mesh order; of the expert view where `ep` or `efsdp` is among them."""
        if axes not in self._known:
            self._known[axes] = self._cut(axes)
        return self._known[axes]

    def _cut(self, axes: tuple[Axis, ...]) -> DeviceMesh:
        expert = "ep" in axes or "efsdp" in axes
        order = EXPERT_AXES if expert else DENSE_AXES
        mesh = self.expert if expert else self.dense
        names = tuple(sorted(axes, key=order.index))
        return mesh[names[0] if len(names) == 1 else names]

    def group(self, axis: Axis) -> dist.ProcessGroup:
        """The process group of this rank along `axis`."""
        return self.of(axis).get_group()

    def size(self, axis: Axis) -> int:
        return self.of(axis).size()

    def rank(self, axis: Axis) -> int:
        """Where this rank stands along `axis`."""
        return self.of(axis).get_local_rank()


def device_type() -> str:
    """The kind of device that transformers would choose: the accelerator, else the CPU (MPS has no meshes)."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator.type if accelerator is not None and accelerator.type in BACKENDS else "cpu"


def bind_device(kind: str, local_rank: int) -> torch.device:
    """Bind this process to its accelerator (nothing to bind on the CPU)."""
    if kind == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.accelerator.device_count():
        count = torch.accelerator.device_count()
        raise ApplicationError(f"local rank {local_rank} has no device of its own: this machine has {count} of {kind}")
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind, local_rank)


def build_meshes(layout: Layout, kind: str | None = None) -> Meshes:
    """Both meshes of `layout`; the process group exists already.

    Raises `ApplicationError` when the process group has another world size than the layout.
    """
    world_size = dist.get_world_size()
    if layout.world_size != world_size:
        raise ApplicationError(f"the program is for {layout.world_size} processes, but {world_size} were started")
    kind = kind or device_type()

    def mesh(axes: tuple[Axis, ...]) -> DeviceMesh:
        return init_device_mesh(kind, tuple(layout.size(axis) for axis in axes), mesh_dim_names=axes)

    return Meshes(mesh(DENSE_AXES), mesh(EXPERT_AXES))
