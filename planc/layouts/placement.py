"""What a tensor is on one mesh axis. Pure data; `runtime` turns it into torch's own placements."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank of the axis holds the whole tensor."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank holds a contiguous block of `dim`, in torch's `chunk` sizes (the last ones may be shorter or empty)."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True, slots=True)
class StridedShard:
    """`dim` consists of `split_factor` equal parts; each rank holds its block of every part, one after the other."""

    dim: int
    split_factor: int

    def __str__(self) -> str:
        return f"S({self.dim}, parts={self.split_factor})"


@dataclass(frozen=True, slots=True)
class Partial:
    """Each rank holds a summand; the tensor is their sum."""

    def __str__(self) -> str:
        return "P"


Placement = Replicate | Shard | StridedShard | Partial
