"""What a style does where a value enters or leaves a module: the typed function it is."""

from dataclasses import dataclass

from planc.flow.plan import Ranks
from planc.flow.problems import CantFollowError, Kind, MismatchError
from planc.flow.types import WHOLE, Fill, Gradient, Origin, PartialSum, Sharded, Type, Unknown, Wrong
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.styles.types import StyleType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Boundary:
    """A style at work on one module. `style` is its name, `target` the module's."""

    type: StyleType
    style: str
    target: str
    ranks: Ranks

    @property
    def origin(self) -> Origin:
        """What values that this boundary makes come from."""
        return Origin(self.target, self.style)

    @property
    def checks_input(self) -> bool:
        """Whether the style takes an input to be something that it relies on."""
        relies = isinstance(self.type.input, Replicate) or self.type.input == Shard(-1)
        return relies and not self.type.distributed and not self.type.divides_input

    @property
    def transforms_output(self) -> bool:
        """Whether the style handles the output, which must then be one tensor."""
        return self.type.output is not None and (
            self.type.output != self.type.yields or self.type.sums_output_gradient or self.type.distributed
        )

    @property
    def hands_on_a_view(self) -> bool:
        """Whether transformers hands the output on as a view from an autograd function (packed styles hook none)."""
        return self.type.output is not None and not isinstance(self.type.yields, StridedShard)

    def enter(self, kind: Type, shape: Shape, value: int) -> Type:
        """The type inside of an input of type `kind`. Raises MismatchError, CantFollowError."""
        if self.type.divides_input:
            return self._divided(kind, value)
        if not self.checks_input:
            return kind
        if isinstance(kind, Wrong | Unknown):
            # It was told; what the style takes for granted is where to go on from.
            return self._place(self.type.computes or Replicate(), shape)
        if isinstance(kind, PartialSum):
            raise MismatchError(Kind.UNREDUCED, f"`{self.style}` takes a complete input, and gets a partial sum", value)
        assert self.type.input is not None
        if isinstance(self.type.input, Replicate):
            self._needs_whole(kind, shape, value)
            return self._place(self.type.computes or self.type.input, shape)
        return self._needs_shard(kind, shape, value)

    def _divided(self, kind: Type, value: int) -> Type:
        """A whole value divided by the number of ranks is a summand of itself; another one is just smaller."""
        if kind == WHOLE or isinstance(kind, Wrong | Unknown):
            return PartialSum(self.origin)
        if isinstance(kind, Sharded | PartialSum):
            detail = f"`{self.style}` divides a whole input by {self.ranks.size}, to be summed again, and gets {kind}"
            raise MismatchError(Kind.UNREDUCED, detail, value)
        raise CantFollowError(f"`{self.style}` of {kind}")

    def _needs_whole(self, kind: Type, shape: Shape, value: int) -> None:
        if isinstance(kind, Sharded):
            detail = f"`{self.style}` takes the whole input, and gets {kind.sizes[0]} of {shape[kind.dim]}"
            raise MismatchError(Kind.NEEDS_WHOLE, detail, value)
        if isinstance(kind, Fill):
            raise CantFollowError("a part of a constant")

    def _needs_shard(self, kind: Type, shape: Shape, value: int) -> Type:
        expected = self._place(Shard(-1), shape)
        if kind == expected:
            return kind
        assert isinstance(expected, Sharded)
        if isinstance(kind, Sharded) and kind.dim == expected.dim:
            detail = f"`{self.style}` takes a contiguous block of the input, and gets {kind}"
            raise MismatchError(Kind.SHARDS_DISAGREE, detail, value)
        got = f"{kind}" if isinstance(kind, Sharded) else f"all {shape[-1]}"
        detail = f"`{self.style}` takes {expected.sizes[0]} of {shape[-1]} input features, and gets {got}"
        raise MismatchError(Kind.NEEDS_SHARD, detail, value)

    def _place(self, placement: Placement, shape: Shape) -> Type:
        return self.ranks.place(placement, shape, self.origin)

    def leave(self, kind: Type, shape: Shape, value: int) -> Type:
        """The type outside of an output of type `kind`. Raises MismatchError, CantFollowError."""
        yields, output = self.type.yields, self.type.output
        if output is None or yields is None or yields == output:
            return kind
        if isinstance(kind, Wrong | Unknown):
            return self._place(output, shape)
        if isinstance(yields, Partial):
            return self._summed(kind, value)
        if isinstance(yields, Shard | StridedShard) and isinstance(output, Replicate):
            if kind != self._place(yields, shape):
                raise MismatchError(Kind.SHARDS_DISAGREE, f"`{self.style}` gathers blocks, and gets {kind}", value)
            return WHOLE
        raise CantFollowError(f"`{self.style}`")

    def _summed(self, kind: Type, value: int) -> Type:
        if isinstance(kind, PartialSum):
            return WHOLE
        if isinstance(kind, Sharded):
            raise MismatchError(Kind.SUMMED_TWICE, f"`{self.style}` adds up different parts ({kind})", value)
        detail = f"the value is already complete, and `{self.style}` sums it over {self.ranks.size} ranks"
        raise MismatchError(Kind.SUMMED_TWICE, detail, value)

    def enter_gradient(self, inside: Gradient, argument: int) -> Gradient:
        """What arrives outside of the gradient that arrives inside at an input."""
        if self.type.distributed or argument not in self.type.arguments:
            return inside
        sums = isinstance(self.type.input_gradient, Partial) and isinstance(self.type.input, Replicate)
        if not sums:
            return inside
        return {Gradient.PARTIAL: Gradient.COMPLETE, Gradient.COMPLETE: Gradient.SCALED}.get(inside, inside)

    def leave_gradient(self, outside: Gradient) -> Gradient:
        """What arrives inside of the gradient of an output."""
        changes = self.type.output is not None and self.type.yields != self.type.output
        return Gradient.MIXED if changes and outside is Gradient.PARTIAL else outside
