"""Requirements: what they mean, and what is said of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planc.syntax.expressions import parse_requirement
from planc.syntax.plan import Binary, Expression, Name, Not, Number, Requirement
from planc.syntax.requirements import Undecided, culprits, holds, names, spelled
from tests.syntax.helpers import scalar, without_places

VALUES = {"tp_size": 8, "ep_size": 4, "heads": 12, "zero": 0}


def condition(text: str) -> Expression:
    parsed = parse_requirement(scalar(text))
    assert isinstance(parsed, Requirement), parsed
    return parsed.expression


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("heads % tp_size == 0", False),
        ("heads % ep_size == 0", True),
        ("2 + 3 * 4 == 14", True),
        ("(2 + 3) * 4 == 20", True),
        ("10 - 3 - 2 == 5", True),
        ("17 // 5 * 5 + 17 % 5 == 17", True),
        ("-7 // 2 == -4", True),
        ("-(-3) == 3", True),
        ("1 <= ep_size <= 8", True),
        ("1 < ep_size < 4", False),
        ("not ep_size > 8", True),
        ("not not ep_size > 8", False),
        ("not ep_size > 8 and tp_size == 8", True),
        ("ep_size == 1 or tp_size == 8 and zero == 0", True),
        ("(ep_size == 1 or tp_size == 8) and zero == 1", False),
        ("zero != 0 and heads % zero == 0", False),
        ("zero == 0 or heads % zero == 0", True),
        ("unknown == 1 and zero == 1", False),
        ("zero == 0 or unknown == 1", True),
    ],
)
def test_holds(text: str, verdict: bool) -> None:
    assert holds(condition(text), VALUES) is verdict


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("unknown == 1", Undecided(("unknown",))),
        ("b + a > 1 and zero == 0 and b > 2", Undecided(("b", "a"))),
        ("not text_config.layers > 1", Undecided(("text_config.layers",))),
        ("heads % zero == 0", Undecided(fault="`heads % zero` divides by zero")),
        ("heads // (zero * 2) == a", Undecided(("a",), "`heads // (zero * 2)` divides by zero")),
        (" * ".join(["999999999999999999"] * 20) + " > 0", None),
    ],
)
def test_undecided(text: str, reason: Undecided | None) -> None:
    found = holds(condition(text), VALUES)
    assert isinstance(found, Undecided)
    if reason is None:
        assert found.fault is not None
        assert found.fault.endswith("is beyond 64 bits")
    else:
        assert found == reason


def test_culprits_are_the_comparisons_that_fail() -> None:
    broken = condition("1 <= ep_size <= 2 and not (tp_size > 4 and heads < 20) and zero == 0")
    assert [(spelled(c.comparison), c.left, c.right) for c in culprits(broken, VALUES)] == [
        ("ep_size <= 2", 4, 2),
        ("tp_size > 4", 8, 4),
        ("heads < 20", 12, 20),
    ]
    assert culprits(condition("unknown == 2 or ep_size == 4"), VALUES) == ()


def test_names_and_values_in_words() -> None:
    expression = condition("heads % (tp_size * ep_size) == 0 and heads > 1")
    assert tuple(names(expression)) == ("heads", "tp_size", "ep_size")
    assert spelled(expression.left, VALUES) == "12 % (8 * 4) == 0"


NUMBERS = st.recursive(
    st.sampled_from([Number(2, scalar("").span), Name("a", scalar("").span), Name("b.c", scalar("").span)]),
    lambda inner: st.builds(
        Binary, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner, st.just(scalar("").span)
    ),
    max_leaves=6,
)
COMPARISONS = st.builds(
    Binary, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), NUMBERS, NUMBERS, st.just(scalar("").span)
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["and", "or"]), inner, inner, st.just(scalar("").span)),
        st.builds(Not, inner, st.just(scalar("").span)),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_what_is_spelled_reads_as_the_same(expression: Expression) -> None:
    text = spelled(expression)
    if len(text) <= 500:
        assert without_places(condition(text)) == without_places(expression)


@given(st.text("ab12 ()+-*/%<>=!&|.'", max_size=20))
def test_any_text_gives_a_requirement_or_a_finding(text: str) -> None:
    parsed = parse_requirement(scalar(text))
    assert parsed.span is not None
    if isinstance(parsed, Requirement):
        assert isinstance(holds(parsed.expression, {"a": 1, "b": 2}), bool | Undecided)


@pytest.mark.parametrize(
    "text", ["(" * 240 + "a == 1" + ")" * 240, "not " * 120 + "a == 1", "(-" * 160 + "a" + ")" * 160 + " == 1"]
)
def test_the_deepest_requirements_are_read(text: str) -> None:
    assert isinstance(holds(condition(text), {"a": 1}), bool)
