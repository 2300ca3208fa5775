"""The left side of a rule: text to `Key`."""

import re
from itertools import product
from math import prod

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix
from planc.syntax import codes
from planc.syntax.grammars import Branch, Leaf, SyntaxFaultError, parse
from planc.syntax.limits import MAX_ALTERNATIVES, MAX_INDEX_DIGITS, MAX_KEY
from planc.syntax.nodes import Scalar
from planc.syntax.plan import Indices, Key, Names, Segment, Wildcard
from planc.syntax.wording import shown

# A key that needs no grammar: most do, and a warm check then never imports lark. Agrees with `key.lark`.
_PLAIN = re.compile(r"(?:\*|[^\W\d][\w-]*)(?:\.(?:\*|[^\W\d][\w-]*))*")
_WILDCARD = Wildcard()

_WORDS = {
    "WORD": "a name",
    "STAR": "`*`",
    "INDEX": "a layer number",
    "LSQB": "an index set `[0-2,5]`",
    "LBRACE": "an alternation `{gate,up}`",
    "NUMBER": "a layer number",
    "DOT": "`.`",
    "MINUS": "`-`",
    "_COMMA": "`,`",
    "RSQB": "`]`",
    "RBRACE": "`}`",
    "$END": "the end of the key",
}

# What stands before and at the fault, what to say, and what helps. The first that fits is taken.
_FAULTS = (
    (r"", r"$", "a key can't be empty", "name a module or a parameter, as in `model.layers.*.mlp.up_proj`"),
    (r".*\*", r"\*", "`**` is not a key: `*` is one layer number", "write one segment for each part of the name"),
    (
        r".*[\w}-]",
        r"\*",
        "`*` is one layer number and can't be a part of a name",
        "list the names: `{gate,up}_proj`",
    ),
    (
        r".*\*",
        r"[\w{-]",
        "`*` is one layer number and can't be a part of a name",
        "list the names: `{gate,up}_proj`",
    ),
    (r".*\.", r"$", "a key can't end with a dot", "remove it, or name what follows"),
    (r"", r"\.", "a key can't start with a dot", "keys are full names, from the model's root"),
    (r".*\.", r"\.", "two dots with nothing between them", "remove one"),
    (r".*\[ *", r"\]", "an index set can't be empty", "list layer numbers: `[0-2,5]`"),
    (r".*\{ *", r"\}", "an alternation can't be empty", "list names: `{gate,up}_proj`"),
    (r".*\{[^}]*", r"\.", "an alternation chooses within one segment", "write a rule for each name"),
    (r".*\{[^}]*", r"\{", "alternations can't be nested", "list all names in one: `{gate,up}_proj`"),
    (r".*\{[^}]*", r"\*", "an alternation lists names, not `*`", "list all names in one: `{gate,up}_proj`"),
    (r"[^{]*", r"[,}]", "an alternation starts with `{`", "list names: `{gate,up}_proj`"),
    (r".*\{[^}]*, *", r"[,}]", "an alternative can't be empty", "list names: `{gate,up}_proj`"),
    (r".*\{ *", r",", "an alternative can't be empty", "list names: `{gate,up}_proj`"),
    (r".*[\w}-]", r"\[", "an index set is a segment of its own", "put a dot before it: `layers.[0-2]`"),
    (r".*\]", r"[\w{*[-]", "an index set is a segment of its own", "put a dot after it: `layers.[0-2].mlp`"),
    (r".*\[[^\]]*", r":", "a range is written with `-`, and both its ends belong to it", "write `[0-2]`"),
    (r".*", r"\?", "`?` has no meaning in a key", "list the names: `{gate,up}_proj`"),
    (
        r".*",
        r"[\\^$()|+]",
        "a key is a dotted name, not a regular expression",
        "`*` is one layer number, `[0-2,5]` a set of them, `{gate,up}_proj` a choice of names",
    ),
    (r".*", r"\s", "a key can't hold spaces", "separate the parts of the name with dots"),
    (r".*", r"/", "the parts of a name are separated by dots", "write `.` for `/`"),
)


class _FaultyKeyError(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic


def parse_key(scalar: Scalar) -> Key | Diagnostic:
    """The key that `scalar` spells, or what is wrong with it."""
    if len(scalar.value) > MAX_KEY:
        message = f"a key has at most {MAX_KEY} characters, this one has {len(scalar.value):,}"
        return codes.InvalidKey.code.found(message, span=scalar.inner())
    if _PLAIN.fullmatch(scalar.value):
        return Key(scalar.value, tuple(map(_plain_segment, scalar.value.split("."))), scalar.inner())
    return parse_key_by_grammar(scalar)


def parse_key_by_grammar(scalar: Scalar) -> Key | Diagnostic:
    """`parse_key` for any key, plain or not."""
    try:
        tree = parse("key", scalar.value, _WORDS)
        assert isinstance(tree, Branch)
        segments = tuple(_segment(segment.branches[0], scalar) for segment in tree.branches)
        if prod(len(s.alternatives) for s in segments if isinstance(s, Names)) > MAX_ALTERNATIVES:
            raise _alternation_error(f"more than {MAX_ALTERNATIVES} alternatives", scalar, 0, len(scalar.value))
    except SyntaxFaultError as fault:
        return _explain(fault, scalar)
    except _FaultyKeyError as error:
        return error.diagnostic
    return Key(_spaceless(scalar.value), segments, scalar.inner())


def _spaceless(text: str) -> str:
    """Spaces around the commas of a set mean nothing; without them keys that mean the same are spelt the same."""
    return text.replace(" ", "")


def _plain_segment(text: str) -> Segment:
    return _WILDCARD if text == "*" else Names((text,))


def _segment(tree: Branch, scalar: Scalar) -> Segment:
    match tree.kind:
        case "wildcard":
            return _WILDCARD
        case "index":
            number = _number(tree.leaves[0], scalar)
            return Indices(((number, number),))
        case "index_set":
            return Indices(tuple(_range(branch, scalar) for branch in tree.branches))
        case _:
            return Names(_alternatives(tree, scalar))


def _number(token: Leaf, scalar: Scalar) -> int:
    start, end = token.start, token.end
    if len(token) > MAX_INDEX_DIGITS:
        raise _FaultyKeyError(
            codes.InvalidIndexSet.code.found(
                f"a layer number has at most {MAX_INDEX_DIGITS} digits", span=scalar.inner(start, end), key=scalar.value
            )
        )
    if token.startswith("0") and token != "0":
        span, canonical = scalar.inner(start, end), str(int(token))
        raise _FaultyKeyError(
            codes.InvalidIndexSet.code.found(
                f"`{token}` has leading zeros, and no layer is called so",
                span=span,
                key=scalar.value,
                help=() if scalar.start is not None else (f"write `{canonical}`",),
                fix=_fix(scalar, start, end, canonical),
            )
        )
    return int(token)


def _range(tree: Branch, scalar: Scalar) -> tuple[int, int]:
    first, last = tree.leaves[0], tree.leaves[-1]
    lowest, highest = _number(first, scalar), _number(last, scalar)
    if highest < lowest:
        raise _FaultyKeyError(
            codes.InvalidIndexSet.code.found(
                f"the range `{first}-{last}` is reversed: it holds no layer",
                span=scalar.inner(first.start, last.end),
                key=scalar.value,
                help=() if scalar.start is not None else (f"write `{last}-{first}`",),
                fix=_fix(scalar, first.start, last.end, f"{last}-{first}"),
            )
        )
    return lowest, highest


def _alternatives(tree: Branch, scalar: Scalar) -> tuple[str, ...]:
    """Every name that a segment of words and alternations spells, the last alternation running fastest."""
    parts = [(str(p),) if isinstance(p, Leaf) else tuple(map(str, p.leaves)) for p in tree.children]
    start, end = tree.start, tree.end
    count = 1
    for part in parts:
        count *= len(part)
        if count > MAX_ALTERNATIVES:
            raise _alternation_error(f"more than {MAX_ALTERNATIVES} alternatives in one segment", scalar, start, end)
    names = tuple("".join(choice) for choice in product(*parts))
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise _alternation_error(f"the alternation names {shown(repeated)} twice", scalar, start, end)
    if digits := next((name for name in names if name.isdecimal()), None):
        raise _alternation_error(
            f"the alternative `{digits}` is a layer number", scalar, start, end, "an index set says it: `[0-2,5]`"
        )
    return names


def _alternation_error(message: str, scalar: Scalar, start: int, end: int, *help_: str) -> _FaultyKeyError:
    return _FaultyKeyError(
        codes.InvalidAlternation.code.found(message, span=scalar.inner(start, end), key=scalar.value, help=tuple(help_))
    )


def _fix(scalar: Scalar, start: int, end: int, replacement: str) -> Fix | None:
    if scalar.start is None:
        return None
    return Fix(f"write `{replacement}`", (Edit(scalar.inner(start, end), replacement),), safe=True)


def _explain(fault: SyntaxFaultError, scalar: Scalar) -> Diagnostic:
    before, after = scalar.value[: fault.start], scalar.value[fault.start :]
    code, otherwise = codes.InvalidKey.code, f"{shown(scalar.value)} is not a key"
    if before.count("[") > before.count("]"):
        code, otherwise = codes.InvalidIndexSet.code, f"{shown(scalar.value)} holds a broken index set"
    elif before.count("{") > before.count("}"):
        code, otherwise = codes.InvalidAlternation.code, f"{shown(scalar.value)} holds a broken alternation"
    message, helps = next(
        (
            (message, (help_,))
            for left, right, message, help_ in _FAULTS
            if re.fullmatch(left, before, re.DOTALL) and re.match(right, after)
        ),
        (otherwise, ()),
    )
    # Of `**` the second star is the fault, and both are the token.
    start = fault.start - 1 if before.endswith("*") and after.startswith("*") else fault.start
    return code.found(
        message,
        span=scalar.inner(start, fault.end),
        label=f"expected {fault.wanted}",
        key=scalar.value,
        help=helps,
    )
