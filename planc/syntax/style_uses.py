"""The right side of a rule: text to `StyleUse`."""

import re

from planc.diagnostics.diagnostic import Diagnostic
from planc.syntax import codes
from planc.syntax.grammars import Branch, Leaf, SyntaxFaultError, parse
from planc.syntax.limits import MAX_DIGITS
from planc.syntax.nodes import Scalar
from planc.syntax.plan import StyleUse
from planc.syntax.wording import shown

# A style without arguments needs no grammar (as `keys._PLAIN`).
_PLAIN = re.compile(r"[^\W\d][\w-]*")

_WORDS = {
    "NAME": "a name",
    "INTEGER": "a whole number",
    "STRING": "a quoted text",
    "LPAR": "`(`",
    "EQUAL": "`=`",
    "COMMA": "`,`",
    "RPAR": "`)`",
    "$END": "the end of the style",
}


def parse_style(scalar: Scalar) -> StyleUse | Diagnostic:
    """The style that `scalar` spells, or what is wrong with it."""
    if _PLAIN.fullmatch(scalar.value):
        return StyleUse(scalar.value, (), scalar.inner())
    return parse_style_by_grammar(scalar)


def parse_style_by_grammar(scalar: Scalar) -> StyleUse | Diagnostic:
    """`parse_style` for any style, plain or not."""
    try:
        tree = parse("style", scalar.value, _WORDS)
    except SyntaxFaultError as fault:
        return _explain(fault, scalar)
    assert isinstance(tree, Branch)
    given: dict[str, int | str] = {}
    for argument in tree.branches:
        if found := _argument_fault(argument, scalar, given):
            return found
        name, value = argument.leaves
        given[str(name)] = _value(value)
    return StyleUse(str(tree.leaves[0]), tuple(given.items()), scalar.inner())


def _argument_fault(argument: Branch, scalar: Scalar, given: dict[str, int | str]) -> Diagnostic | None:
    name, value = argument.leaves
    if name in given:
        message, token = f"the argument `{name}` is given twice", name
    elif value.kind == "INTEGER" and len(value) > MAX_DIGITS:
        message, token = f"a number has at most {MAX_DIGITS} digits", value
    else:
        return None
    return codes.InvalidStyle.code.found(message, span=scalar.inner(token.start, token.end))


def _value(token: Leaf) -> int | str:
    if token.kind == "INTEGER":
        return int(token)
    return str(token[1:-1]) if token.kind == "STRING" else str(token)


def _explain(fault: SyntaxFaultError, scalar: Scalar) -> Diagnostic:
    empty = not scalar.value.strip()
    message = "a style can't be empty" if empty else f"{shown(scalar.value)} is not a style"
    return codes.InvalidStyle.code.found(
        message,
        span=scalar.inner(fault.start, fault.end),
        label=f"expected {fault.wanted}",
        help=("a style is a name, with arguments where it takes some: `packed_colwise(split_factor=2)`",),
    )
