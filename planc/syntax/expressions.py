"""A requirement: text to `Expression`."""

import re

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix
from planc.diagnostics.span import Span
from planc.syntax import codes
from planc.syntax.grammars import Branch, Leaf, SyntaxFaultError, parse
from planc.syntax.limits import MAX_DIGITS, MAX_REQUIREMENT
from planc.syntax.nodes import Scalar
from planc.syntax.plan import Binary, Expression, Name, Not, Number, Requirement
from planc.syntax.wording import shown

_COMPARES = "a requirement compares, as in `ep_size <= 8`"
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
CONNECTIVES = frozenset({"and", "or"})

_WORDS = {
    "NUMBER": "a whole number",
    "NAME": "a name",
    "LPAR": "`(`",
    "NOT": "`not`",
    "COMPARE": "a comparison such as `==` or `<=`",
    "TIMES": "an operator such as `*`, `//` or `%`",
    "AND": "`and`",
    "OR": "`or`",
    "RPAR": "`)`",
    "$END": "the end of the requirement",
}

# What stands at the fault, what to say of it, and what to write instead where that is certain.
_MEANT = (
    ("&&", "write `and`", "and"),
    ("||", "write `or`", "or"),
    ("=", "compare with `==`", "=="),
    ("!", "write `not`, or `!=`", None),
    ("/", "divide with `//`, which rounds down; all numbers are whole", None),
    ("*", "there are no powers in requirements", None),
    (".", "all numbers are whole", None),
    ("'", "only numbers and names can stand here", None),
    ('"', "only numbers and names can stand here", None),
    ("(", "there are no functions in requirements", None),
)


class _RefusedError(Exception):
    def __init__(self, message: str, span: Span, *help_: str) -> None:
        self.message, self.span, self.help = message, span, help_


def parse_requirement(scalar: Scalar) -> Requirement | Diagnostic:
    """The condition that `scalar` spells, or what is wrong with it.

    A chained comparison `1 <= a <= 8` is `1 <= a and a <= 8`, as in Python; `-a` is `0 - a`.
    """
    if len(scalar.value) > MAX_REQUIREMENT:
        message = f"a requirement has at most {MAX_REQUIREMENT} characters, this one has {len(scalar.value)}"
        return codes.InvalidRequirement.code.found(message, span=scalar.inner())
    try:
        expression = _Builder(scalar).condition(parse("requirement", scalar.value, _WORDS))
    except SyntaxFaultError as fault:
        return _explain(fault, scalar)
    except _RefusedError as error:
        return codes.InvalidRequirement.code.found(error.message, span=error.span, help=error.help)
    return Requirement(_spaced(scalar.value), expression, scalar.inner())


def _spaced(text: str) -> str:
    """`text` with one space around operators, so that requirements that mean the same are mostly spelt the same."""
    return " ".join(re.sub(r"(==|!=|<=|>=|//|[<>+*%])", r" \1 ", text).split())


def is_condition(expression: Expression) -> bool:
    """Whether `expression` is true or false, rather than a number."""
    if isinstance(expression, Binary):
        return expression.operator in COMPARISONS or expression.operator in CONNECTIVES
    return isinstance(expression, Not)


class _Builder:
    """Builds expressions out of lark's tree; numbers and conditions don't mix."""

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar

    def condition(self, tree: Leaf | Branch) -> Expression:
        expression = self._expression(tree)
        if not is_condition(expression):
            raise _RefusedError("this is a number, not a condition", expression.span, _COMPARES)
        return expression

    def number(self, tree: Leaf | Branch) -> Expression:
        expression = self._expression(tree)
        if is_condition(expression):
            raise _RefusedError("this is a condition, not a number", expression.span, _COMPARES)
        return expression

    def _expression(self, tree: Leaf | Branch) -> Expression:
        if isinstance(tree, Leaf):
            return self._atom(tree)
        match tree.kind:
            case "not":
                return Not(self.condition(tree.children[0]), self._span(tree))
            case "negative":
                minus, operand = tree.children
                zero = Number(0, self._span(minus))
                return Binary("-", zero, self.number(operand), self._span(tree))
            case "disjunction" | "conjunction" as kind:
                return self._connected("or" if kind == "disjunction" else "and", tree)
            case "comparison":
                return self._compared(tree)
            case _:
                return self._calculated(tree)

    def _atom(self, token: Leaf) -> Expression:
        span = self._span(token)
        if token.kind == "NAME":
            return Name(str(token), span)
        if len(token) > MAX_DIGITS:
            raise _RefusedError(f"a number has at most {MAX_DIGITS} digits", span)
        return Number(int(token), span)

    def _connected(self, operator: str, tree: Branch) -> Expression:
        result, *operands = (self.condition(child) for child in tree.children)
        for operand in operands:
            result = Binary(operator, result, operand, _between(result.span, operand.span))
        return result

    def _compared(self, tree: Branch) -> Expression:
        operands = [self.number(child) for child in tree.children[::2]]
        result: Expression | None = None
        for left, operator, right in zip(operands, tree.children[1::2], operands[1:], strict=False):
            link = Binary(str(operator), left, right, _between(left.span, right.span))
            result = link if result is None else Binary("and", result, link, _between(result.span, link.span))
        assert result is not None
        return result

    def _calculated(self, tree: Branch) -> Expression:
        result = self.number(tree.children[0])
        for operator, child in zip(tree.children[1::2], tree.children[2::2], strict=True):
            operand = self.number(child)
            result = Binary(str(operator), result, operand, _between(result.span, operand.span))
        return result

    def _span(self, tree: Leaf | Branch) -> Span:
        return self.scalar.inner(tree.start, tree.end)


def _between(first: Span, last: Span) -> Span:
    return Span(first.file, first.line, first.column, last.end_line, last.end_column)


def _explain(fault: SyntaxFaultError, scalar: Scalar) -> Diagnostic:
    rest = scalar.value[fault.start :]
    written, help_, meant = next((m for m in _MEANT if rest.startswith(m[0])), ("", "", None))
    span = scalar.inner(fault.start, max(fault.end, fault.start + len(written)))
    fix = None
    if meant is not None and scalar.start is not None:
        help_, fix = "", Fix(help_, (Edit(span, meant),), safe=True)
    message = f"{shown(scalar.value)} is not a requirement" if scalar.value.strip() else "a requirement can't be empty"
    return codes.InvalidRequirement.code.found(
        message, span=span, label=f"expected {fault.wanted}", help=(help_,) if help_ else (), fix=fix
    )
