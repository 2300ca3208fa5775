"""Keys and styles: what they parse to, and that the way without a grammar agrees with the grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planc.diagnostics.diagnostic import Diagnostic
from planc.diagnostics.span import Span
from planc.syntax.keys import parse_key, parse_key_by_grammar
from planc.syntax.plan import Indices, Key, Names, StyleUse, Wildcard
from planc.syntax.style_uses import parse_style, parse_style_by_grammar
from tests.syntax.helpers import key, scalar
from tests.syntax.strategies import KEYS, PLAIN_KEYS, STYLES


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("lm_head", (Names(("lm_head",)),)),
        ("layers.*.mlp", (Names(("layers",)), Wildcard(), Names(("mlp",)))),
        ("layers.0", (Names(("layers",)), Indices(((0, 0),)))),
        ("layers.[0-2,5]", (Names(("layers",)), Indices(((0, 2), (5, 5))))),
        ("[3]", (Indices(((3, 3),)),)),
        ("{gate,up}_proj", (Names(("gate_proj", "up_proj")),)),
        ("{a,b}_{c,d}", (Names(("a_c", "a_d", "b_c", "b_d")),)),
        ("w{1,2}", (Names(("w1", "w2")),)),
        ("{a,b}1", (Names(("a1", "b1")),)),
        ("0{a,b}", (Names(("0a", "0b")),)),
        ("1d.x-y", (Names(("1d",)), Names(("x-y",)))),
    ],
)
def test_segments(text: str, segments: tuple[object, ...]) -> None:
    assert key(text).segments == segments


def test_spaces_in_sets_mean_nothing() -> None:
    assert key("a.[0, 2].{b, c}").segments == key("a.[0,2].{b,c}").segments
    assert key("a.[0, 2].{b, c}").text == "a.[0,2].{b,c}"


@pytest.mark.parametrize(
    ("text", "portable"),
    [
        ("model.layers.*.mlp", True),
        ("model.layers.0.mlp", False),
        ("model.layers.[0].mlp", False),
        ("model.{a,b}", False),
        ("blocks.*.1.conv", True),  # transformers leaves the second number of a run as it is
        ("blocks.*.[1].conv", False),
        ("0.weight", True),  # and a leading one
        ("0.1.weight", False),
    ],
)
def test_is_portable(text: str, portable: bool) -> None:
    assert key(text).is_portable is portable


@given(st.one_of(KEYS, PLAIN_KEYS, st.text("ab1*.[]{},-_ é", max_size=12)))
def test_plain_keys_agree_with_the_grammar(text: str) -> None:
    assert parse_key(scalar(text)) == parse_key_by_grammar(scalar(text))


@given(KEYS)
def test_generated_keys_are_keys_and_keep_their_text(text: str) -> None:
    parsed = parse_key(scalar(text))
    assert isinstance(parsed, Key)
    assert parsed.text == text.replace(" ", "")
    assert key(parsed.text).segments == parsed.segments


@given(st.one_of(STYLES, st.text("ab1_-(=,)'\" é", max_size=12)))
def test_plain_styles_agree_with_the_grammar(text: str) -> None:
    assert parse_style(scalar(text)) == parse_style_by_grammar(scalar(text))


@given(st.text(max_size=30))
def test_any_text_gives_a_key_or_a_finding_inside_it(text: str) -> None:
    for parsed in (parse_key(scalar(text)), parse_style(scalar(text))):
        whole = scalar(text).span
        assert parsed.span is not None
        assert (whole.line, whole.column) <= (parsed.span.line, parsed.span.column)
        assert (parsed.span.end_line, parsed.span.end_column) <= (whole.end_line, whole.end_column)


@pytest.mark.parametrize(
    ("text", "arguments", "canonical"),
    [
        ("colwise", (), "colwise"),
        ("colwise()", (), "colwise"),
        ("packed(split_factor=2)", (("split_factor", 2),), "packed(split_factor=2)"),
        ("f( a = -3 , b=c, )", (("a", -3), ("b", "c")), "f(a=-3, b=c)"),
        ("""f(a='x y', b="2", c='"')""", (("a", "x y"), ("b", "2"), ("c", '"')), """f(a="x y", b="2", c='"')"""),
    ],
)
def test_style_arguments(text: str, arguments: tuple[object, ...], canonical: str) -> None:
    use = parse_style(scalar(text))
    assert isinstance(use, StyleUse)
    assert use.arguments == arguments
    assert use.text == canonical
    again = parse_style(scalar(canonical))
    assert isinstance(again, StyleUse)
    assert again.arguments == arguments


def test_the_finding_points_into_the_token() -> None:
    found = parse_key(scalar("model.layers.[0-2,7-3].mlp"))
    assert isinstance(found, Diagnostic)
    assert found.span == Span("test", 1, 19, 1, 22)
