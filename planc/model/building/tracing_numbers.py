"""Integers that remember which dims of which tensors they were computed from.

A model that reads `x.shape` at run time adapts to a shard; one that uses a number of its config doesn't. Watching a
forward with these integers tells the two apart.
"""

from typing import Any

# A recorded number: `["dim", value, dim]`, or an operator with two recorded numbers.
Expression = int | list[Any]


class TracedInt(int):
    """An `int` with the expression that it came from."""

    expression: Expression

    def __new__(cls, value: int, expression: Expression) -> "TracedInt":
        self = super().__new__(cls, value)
        self.expression = expression
        return self

    def _combine(self, operator: str, value: Any, other: Any, *, reflected: bool = False) -> Any:
        if not isinstance(value, int) or isinstance(other, bool) or not isinstance(other, int):
            return value
        left, right = recorded(self), recorded(other)
        return TracedInt(value, [operator, right, left] if reflected else [operator, left, right])

    def __add__(self, other: Any) -> Any:
        return self._combine("+", int(self).__add__(other), other)

    def __radd__(self, other: Any) -> Any:
        return self._combine("+", int(self).__radd__(other), other, reflected=True)

    def __sub__(self, other: Any) -> Any:
        return self._combine("-", int(self).__sub__(other), other)

    def __rsub__(self, other: Any) -> Any:
        return self._combine("-", int(self).__rsub__(other), other, reflected=True)

    def __mul__(self, other: Any) -> Any:
        return self._combine("*", int(self).__mul__(other), other)

    def __rmul__(self, other: Any) -> Any:
        return self._combine("*", int(self).__rmul__(other), other, reflected=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._combine("//", int(self).__floordiv__(other), other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine("//", int(self).__rfloordiv__(other), other, reflected=True)

    def __mod__(self, other: Any) -> Any:
        return self._combine("%", int(self).__mod__(other), other)

    def __neg__(self) -> Any:
        return TracedInt(-int(self), ["-", 0, recorded(self)])


class TracedShape(tuple[int, ...]):
    """What `tensor.shape` gives while a forward is watched: a tuple of traced integers with `torch.Size`'s `numel`."""

    def numel(self) -> int:
        total = 1
        for size in self:
            total = total * size if not isinstance(size, TracedInt) else size * total
        return total

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return TracedShape(item) if isinstance(index, slice) else item


def recorded(number: int) -> Expression:
    """The expression of a traced integer, a plain one as itself."""
    return number.expression if isinstance(number, TracedInt) else int(number)
