"""What a pass over a flow finds: places where layout types don't fit."""

from dataclasses import dataclass
from enum import Enum

from planc.flow.types import Origin, Type


class Kind(Enum):
    """Kinds of faults; each has a rule of `check` of its own."""

    NEEDS_WHOLE = "needs-whole"
    NEEDS_SHARD = "needs-shard"
    UNREDUCED = "unreduced"
    SUMMED_TWICE = "summed-twice"
    BIAS_ON_EVERY_RANK = "bias-on-every-rank"
    PACKED_CUT = "packed-cut"
    REDUCED_OVER_SHARD = "reduced-over-shard"
    HEAD_CUT = "head-cut"
    SHARDS_DISAGREE = "shards-disagree"
    MIXED_TENSORS = "mixed-tensors"
    CALL = "call"
    CHANGED_OUTPUT = "changed-output"
    PARTIAL_GRADIENT = "partial-gradient"
    MIXED_GRADIENT = "mixed-gradient"
    SCALED_GRADIENT = "scaled-gradient"


class MismatchError(Exception):
    """Raised by the rule of an operation: its inputs' types don't fit it."""

    def __init__(self, kind: Kind, detail: str, *values: int) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.values = kind, detail, values


class CantFollowError(Exception):
    """Raised by the rule of an operation that doesn't know what becomes of these types."""


# After these the pass goes on as if the value were complete, so that faults further on show too.
RECOVERED = frozenset({Kind.UNREDUCED})


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, in names of the flow's own layers.

    `module` is where it shows, `operation` torch's function there, `detail` one clause that says what doesn't fit.
    `path` are the modules from the producer to the consumer, `types` the types at both ends; `origins` are the rules'
    targets that made those types, `parameter` the parameter whose gradient is wrong. `whole` are the parameters, the
    nearest first, that what is whole at the consumer comes from.
    """

    kind: Kind
    module: str
    operation: str
    detail: str
    path: tuple[str, ...] = ()
    types: tuple[Type, ...] = ()
    origins: tuple[Origin, ...] = ()
    parameter: str | None = None
    whole: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """Something that the pass can't follow: in `module`, for `reason`."""

    module: str
    operation: str
    reason: str
    origins: tuple[Origin, ...] = ()
