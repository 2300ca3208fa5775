"""A full set of mesh sizes, and where each rank stands in it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Axis = Literal["pp", "dp_replicate", "fsdp", "tp", "efsdp", "ep"]
DENSE_AXES: tuple[Axis, ...] = ("pp", "dp_replicate", "fsdp", "tp")
EXPERT_AXES: tuple[Axis, ...] = ("pp", "dp_replicate", "efsdp", "ep")


@dataclass(frozen=True, slots=True)
class Layout:
    """Mesh sizes with the names and meaning of transformers 5.24.0's `DistributedConfig`.

    Two views of the same ranks: dense `(pp, dp_replicate, fsdp, tp)` and expert `(pp, dp_replicate, efsdp, ep)`;
    the last axis is the fastest. The sizes may be illegal together: rules of `check` judge them.
    """

    pp_size: int = 1
    dp_replicate_size: int = 1
    fsdp_size: int = 1
    tp_size: int = 1
    ep_size: int = 1
    ep_implementation: str = "auto"

    @property
    def world_size(self) -> int:
        """How many processes the layout needs: `pp * dp_replicate * fsdp * tp`."""
        return self.pp_size * self.dp_replicate_size * self.fsdp_size * self.tp_size

    @property
    def efsdp_size(self) -> int:
        """How many complete copies of the expert set there are: `fsdp * tp // ep`."""
        return self.fsdp_size * self.tp_size // self.ep_size

    @property
    def dp_size(self) -> int:
        """How many ranks see a batch of their own: `dp_replicate * fsdp`."""
        return self.dp_replicate_size * self.fsdp_size

    def size(self, axis: Axis) -> int:
        """The number of ranks along `axis`."""
        return int(getattr(self, f"{axis}_size"))

    def coordinates(self, rank: int, axes: tuple[Axis, ...] = DENSE_AXES) -> Mapping[Axis, int]:
        """Where `rank` stands on each of `axes` (all of one view, slowest first)."""
        place: dict[Axis, int] = {}
        for axis in reversed(axes):
            rank, place[axis] = divmod(rank, self.size(axis))
        return place

    def to_json(self) -> dict[str, int | str]:
        return {**asdict(self), "efsdp_size": self.efsdp_size, "world_size": self.world_size}
