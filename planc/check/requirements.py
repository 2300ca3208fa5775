"""The value of a requirement's expression over mesh sizes and config fields."""

from collections.abc import Callable, Mapping
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub
from typing import Any

from planc.check.rule import CheckContext
from planc.diagnostics.span import Span
from planc.syntax.plan import SIZE_NAMES, Binary, Expression, Name, Not, Number

SIZES = (*SIZE_NAMES, "world_size", "efsdp_size")
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": add, "-": sub, "*": mul, "//": floordiv, "%": mod,
    "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
# Enough for any product of sizes; keeps a hostile chain of multiplications cheap.
_LARGEST = 10**30


class RequirementError(Exception):
    """Why an expression has no value; `span` is the part to blame, `name` the unknown name where that is it."""

    def __init__(self, message: str, span: Span, name: str | None = None) -> None:
        super().__init__(message)
        self.span = span
        self.name = name


def known_names(context: CheckContext) -> dict[str, Any]:
    """Every name that a requirement may use: mesh sizes, then fields of the config, those of the text config first."""
    config = context.manifest.file.config
    text = config.get("text_config")
    fields = {**config, **(text if isinstance(text, dict) else {})}
    return {**fields, **{name: getattr(context.layout, name) for name in SIZES}}


def evaluate(expression: Expression, names: Mapping[str, Any]) -> int:
    """The value of `expression`, truth as 0 and 1. Raises RequirementError."""
    match expression:
        case Number(value):
            return value
        case Name(name, span):
            return _value(name, span, names)
        case Not(operand):
            return int(not evaluate(operand, names))
        case Binary("and", left, right):
            return int(bool(evaluate(left, names)) and bool(evaluate(right, names)))
        case Binary("or", left, right):
            return int(bool(evaluate(left, names)) or bool(evaluate(right, names)))
        case Binary():
            return _binary(expression, evaluate(expression.left, names), evaluate(expression.right, names))
    raise TypeError(expression)


def _value(name: str, span: Span, names: Mapping[str, Any]) -> int:
    if name not in names:
        raise RequirementError(f"`{name}` is neither a mesh size nor a field of the model's config", span, name)
    value = names[name]
    if not isinstance(value, int):
        raise RequirementError(f"`{name}` is no whole number in this config: {_shown(value)}", span)
    return int(value)


def _binary(expression: Binary, left: int, right: int) -> int:
    if expression.operator in ("//", "%") and right == 0:
        raise RequirementError("division by zero", expression.right.span)
    value = int(_ARITHMETIC[expression.operator](left, right))
    if abs(value) > _LARGEST:
        raise RequirementError("the number is too large", expression.span)
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"
