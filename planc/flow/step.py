"""One operation of a flow with the types of its inputs: what the rules of operations see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planc.flow.pieces import length
from planc.flow.problems import CantFollowError, Kind, MismatchError
from planc.flow.types import Fill, PartialSum, Sharded, Type, Unknown, Wrong
from planc.model.dataflow import NUMBER, OTHER, SLICE, VALUE, Argument, Flow, Operation, evaluate

Shape = tuple[int, ...]
Rule = Callable[["Step"], Type | Sequence[Type]]
RULES: dict[str, Rule] = {}
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_PICKS = frozenset({"getitem", "view", "reshape", "expand", "to", "squeeze", "unsqueeze", "transpose", "index_select"})


def operation(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the rule for torch's functions of these names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = rule
        return rule

    return register


@dataclass(slots=True)
class Step:
    """`types` are by value id; `ranks` how many ranks are looked at.

    `added_later` are biases that the module doesn't see: its style adds them once, after the sum.
    """

    flow: Flow
    op: Operation
    inputs: tuple[int, ...]
    types: Callable[[int], Type]
    ranks: int
    looks_up_shard: bool = False
    added_later: frozenset[int] = frozenset()

    def type(self, value: int) -> Type:
        """The type of a value as this operation reads it."""
        return self.types(value)

    def shape(self, value: int) -> Shape:
        """The global shape of a value."""
        return self.flow.shapes[value]

    def local_shape(self, value: int, rank: int) -> Shape:
        """The shape of what the `rank`th of the ranks looked at holds. Raises CantFollowError."""
        kind, shape = self.types(value), self.flow.shapes[value]
        if isinstance(kind, Sharded):
            return (*shape[: kind.dim], length(kind.pieces[rank]), *shape[kind.dim + 1 :])
        if isinstance(kind, Fill):
            return kind.shapes[rank]
        if isinstance(kind, Wrong | Unknown):
            raise CantFollowError("its shape is not known")
        return shape

    def number(self, argument: Argument, rank: int | None) -> int:
        """A number argument on a rank, or (None) in one process. Raises CantFollowError."""
        if isinstance(argument, int):
            return argument
        if not isinstance(argument, list | tuple) or argument[0] != NUMBER:
            raise CantFollowError(f"`{argument}` is no number")
        shape = self.shape if rank is None else lambda value: self.local_shape(value, rank)
        try:
            return evaluate(argument[1], lambda value, dim: shape(value)[dim])
        except ZeroDivisionError:
            raise CantFollowError("a size is divided by zero") from None

    def numbers(self, arguments: Sequence[Argument], rank: int | None) -> list[int]:
        """Several number arguments."""
        return [self.number(argument, rank) for argument in arguments]

    def argument(self, position: int, keyword: str, default: Argument = None) -> Argument:
        """A positional or keyword argument, as recorded."""
        if position < len(self.op.arguments):
            return self.op.arguments[position]
        return self.op.keywords.get(keyword, default)

    def value(self, position: int, keyword: str = "") -> int | None:
        """The id of an argument that is a tensor."""
        argument = self.argument(position, keyword)
        is_value = isinstance(argument, list | tuple) and len(argument) == 2 and argument[0] == VALUE
        return argument[1] if is_value else None

    def is_zero(self, value: int) -> bool:
        """Whether a value is made of zeros, or picked or viewed of some."""
        op = self.flow.producers.get(value)
        while op is not None and op.name in _PICKS and op.inputs:
            op = self.flow.producers.get(op.inputs[0])
        return op is not None and op.name in _ZEROS

    def dim(self, argument: Argument, rank_of: int) -> int:
        """A dim argument, counted from the front of `rank_of` dims."""
        return self.number(argument, None) % max(rank_of, 1)

    @property
    def output_shape(self) -> Shape:
        """The global shape of the first output."""
        return self.flow.shapes[self.op.outputs[0]]

    def mismatch(self, kind: Kind, detail: str, *values: int) -> MismatchError:
        """The exception to raise where types don't fit."""
        return MismatchError(kind, detail, *(values or self.inputs))


def is_slice(argument: Argument) -> bool:
    """Whether an index is a slice."""
    return isinstance(argument, list | tuple) and len(argument) == 4 and argument[0] == SLICE


def is_ellipsis(argument: Argument) -> bool:
    """Whether an index is `...`."""
    return isinstance(argument, list | tuple) and list(argument) == [OTHER, "..."]


def is_value(argument: Argument) -> bool:
    """Whether an argument is a tensor."""
    return isinstance(argument, list | tuple) and len(argument) == 2 and argument[0] == VALUE


def sizes(arguments: Sequence[Any]) -> list[Argument]:
    """The size arguments of a view, given one by one or as one tuple."""
    if len(arguments) == 1 and isinstance(arguments[0], list | tuple) and not _is_number(arguments[0]):
        return list(arguments[0])
    return list(arguments)


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, list | tuple) and len(argument) == 2 and argument[0] == NUMBER


def origin_of(kind: Type) -> Any:
    """The rule's target that made a type, where it keeps one."""
    return kind.origin if isinstance(kind, Sharded | PartialSum) else None
