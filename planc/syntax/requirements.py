"""What a requirement says about given numbers. Conditions are true, false, or undecided with the reason."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from planc.syntax.plan import Binary, Expression, Name, Not, Number

# Numbers beyond 64 bits are no size of anything; the bound keeps arithmetic cheap.
LARGEST = 2**63 - 1

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
# How tightly an operator binds, loosest first.
_BINDING = {"or": 1, "and": 2, "not": 3, **dict.fromkeys(_COMPARE, 4), "+": 5, "-": 5, "*": 6, "//": 6, "%": 6}


@dataclass(frozen=True, slots=True)
class Undecided:
    """Why an expression has no value: names without one, or a fault (a division by zero, a number out of bounds)."""

    unknown: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """A comparison with the values of its sides."""

    comparison: Binary
    left: int
    right: int

    @property
    def holds(self) -> bool:
        return _COMPARE[self.comparison.operator](self.left, self.right)


def holds(condition: Expression, values: Mapping[str, int]) -> bool | Undecided:
    """Whether `condition` is true of `values`.

    `and` is false as soon as one side is, `or` true, whatever is unknown of the other side (Kleene's logic).
    """
    if isinstance(condition, Not):
        operand = holds(condition.operand, values)
        return operand if isinstance(operand, Undecided) else not operand
    if isinstance(condition, Binary) and condition.operator in ("and", "or"):
        return _connected(condition, values)
    sides = _sides(condition, values)
    return sides if isinstance(sides, Undecided) else sides.holds


def value(expression: Expression, values: Mapping[str, int]) -> int | Undecided:
    """The number that `expression` is; `//` and `%` round down, as in Python."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Name):
        return values.get(expression.name, Undecided((expression.name,)))
    if not isinstance(expression, Binary) or expression.operator not in _CALCULATE:
        return Undecided(fault=f"`{spelled(expression)}` is not a number")
    left, right = value(expression.left, values), value(expression.right, values)
    if isinstance(left, Undecided) or isinstance(right, Undecided):
        return _both(left, right)
    if expression.operator in ("//", "%") and right == 0:
        return Undecided(fault=f"`{spelled(expression)}` divides by zero")
    result = _CALCULATE[expression.operator](left, right)
    return result if abs(result) <= LARGEST else Undecided(fault=f"`{spelled(expression)}` is beyond 64 bits")


def culprits(condition: Expression, values: Mapping[str, int], expected: bool = True) -> tuple[Sides, ...]:
    """The comparisons because of which `condition` is not `expected`, left to right, with both sides' values."""
    if isinstance(condition, Not):
        return culprits(condition.operand, values, not expected)
    if isinstance(condition, Binary) and condition.operator in ("and", "or"):
        return (*culprits(condition.left, values, expected), *culprits(condition.right, values, expected))
    sides = _sides(condition, values)
    return () if isinstance(sides, Undecided) or sides.holds is expected else (sides,)


def names(expression: Expression) -> Mapping[str, Name]:
    """Every name in `expression` at its first place, left to right."""
    found: dict[str, Name] = {}
    for name in _names(expression):
        found.setdefault(name.name, name)
    return found


def spelled(expression: Expression, values: Mapping[str, int] | None = None) -> str:
    """`expression` as text with no more parentheses than needed; names that `values` has become their numbers."""
    return _spelled(expression, values or {}, 0)


def _connected(condition: Binary, values: Mapping[str, int]) -> bool | Undecided:
    left, right = holds(condition.left, values), holds(condition.right, values)
    decisive = condition.operator == "or"
    if left is decisive or right is decisive:
        return decisive
    if isinstance(left, Undecided) or isinstance(right, Undecided):
        return _both(left, right)
    return not decisive


def _sides(condition: Expression, values: Mapping[str, int]) -> Sides | Undecided:
    if not isinstance(condition, Binary) or condition.operator not in _COMPARE:
        return Undecided(fault=f"`{spelled(condition)}` is not a condition")
    left, right = value(condition.left, values), value(condition.right, values)
    if isinstance(left, Undecided) or isinstance(right, Undecided):
        return _both(left, right)
    return Sides(condition, left, right)


def _both(*results: int | Undecided) -> Undecided:
    undecided = [result for result in results if isinstance(result, Undecided)]
    unknown = dict.fromkeys(name for result in undecided for name in result.unknown)
    return Undecided(tuple(unknown), next((result.fault for result in undecided if result.fault), None))


def _names(expression: Expression) -> Iterator[Name]:
    if isinstance(expression, Name):
        yield expression
    elif isinstance(expression, Not):
        yield from _names(expression.operand)
    elif isinstance(expression, Binary):
        yield from _names(expression.left)
        yield from _names(expression.right)


def _spelled(expression: Expression, values: Mapping[str, int], binding: int) -> str:
    if isinstance(expression, Number):
        return str(expression.value)
    if isinstance(expression, Name):
        return str(values.get(expression.name, expression.name))
    if isinstance(expression, Not):
        own, text = _BINDING["not"], f"not {_spelled(expression.operand, values, _BINDING['not'])}"
    else:
        own = _BINDING[expression.operator]
        left = _spelled(expression.left, values, own)
        # `a - (b - c)`: an operator of the same strength on the right needs its parentheses.
        text = f"{left} {expression.operator} {_spelled(expression.right, values, own + 1)}"
    return f"({text})" if own < binding else text
