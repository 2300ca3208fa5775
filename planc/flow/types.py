"""Layout types: what a value is on one mesh axis, and what the gradient that arrives at it is.

After the lattice of spmd_types 0.3.1 (R, I, V, P, S): a value is whole on every rank, a known part, or a summand. The
gradient's type stands beside it, because a forward can be right while gradients are not.
"""

from dataclasses import dataclass, field
from enum import Enum

from planc.flow.pieces import Pieces, length


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule's target that first made a value other than whole: the module or parameter, and the style it got."""

    target: str
    style: str


@dataclass(frozen=True, slots=True)
class Replicated:
    """The same on every rank, and the value that one process would have."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Sharded:
    """Each rank holds `pieces` of dim `dim`, one entry for each rank that is looked at."""

    dim: int
    pieces: tuple[Pieces, ...]
    origin: Origin | None = field(default=None, compare=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The local size of the sharded dim on each rank."""
        return tuple(length(pieces) for pieces in self.pieces)

    def __str__(self) -> str:
        parts = max(len(pieces) for pieces in self.pieces)
        return f"S({self.dim})" if parts <= 1 else f"S({self.dim}, parts={parts})"


@dataclass(frozen=True, slots=True)
class PartialSum:
    """Each rank holds a summand."""

    origin: Origin | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return "P"


@dataclass(frozen=True, slots=True)
class Fill:
    """A constant of any extent (`zeros`, `new_empty`): a part of it is like the whole. `shapes` are local, by rank."""

    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Wrong:
    """Not what one process would have; a finding has said why."""

    def __str__(self) -> str:
        return "wrong"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The pass can't follow: `reason` names the operation."""

    reason: str

    def __str__(self) -> str:
        return "?"


Type = Replicated | Sharded | PartialSum | Fill | Wrong | Unknown
WHOLE = Replicated()
WRONG = Wrong()


class Gradient(Enum):
    """What the gradient that arrives at a value is.

    `COMPLETE`: for a whole value, the whole gradient on every rank; for a part, that of the part. `PARTIAL`: a summand
    on each rank. `SCALED`: complete, then summed over the axis once more. `MIXED`: complete and partial contributions
    added, which no sum mends.
    """

    NONE = "none"
    COMPLETE = "R"
    PARTIAL = "P"
    SCALED = "scaled"
    MIXED = "mixed"
    UNKNOWN = "?"

    def plus(self, other: "Gradient") -> "Gradient":
        """The type of the sum of two contributions."""
        if self is other or other is Gradient.NONE:
            return self
        if self is Gradient.NONE:
            return other
        # What isn't known was said to be: what is known goes on to be judged.
        if self is Gradient.UNKNOWN:
            return other
        return self if other is Gradient.UNKNOWN else Gradient.MIXED

    def __str__(self) -> str:
        return self.value
