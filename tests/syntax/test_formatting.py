"""The canonical form: by example, and that it keeps the meaning and itself."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planc.syntax.arguments import plan_from_mapping
from planc.syntax.formatting import format_text
from planc.syntax.parser import parse_text
from tests.syntax.helpers import without_places
from tests.syntax.strategies import CONDITIONS, KEYS, STYLES

FORMAT = Path(__file__).parent / "format"


@pytest.mark.parametrize("path", sorted(FORMAT.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    """Each plan of `format/` becomes what stands in the `.out` beside it."""
    formatted, found = format_text(path.read_text(), path.name)
    assert not found
    assert formatted == path.with_suffix(".out").read_text()
    assert format_text(formatted, path.name) == (formatted, [])


def test_json_stays_json() -> None:
    written = json.dumps({"tp_plan": {"b.*": "rowwise", "a.*": "colwise"}, "tp_size": 2, "ep_plan": None})
    formatted, found = format_text(written, "plan.json")
    assert not found
    assert formatted is not None
    assert list(json.loads(formatted)) == ["tp_size", "tp_plan", "ep_plan"]
    assert list(json.loads(formatted)["tp_plan"]) == ["b.*", "a.*"]
    assert formatted.count("\n") == 8


def test_a_faulty_plan_is_left_alone() -> None:
    formatted, found = format_text("tp_size: 2\ntp_plan:\n  a..b: colwise\n", "plan.yaml")
    assert formatted is None
    assert [f.code for f in found] == ["PL021"]


def test_the_extended_plan_is_not_read() -> None:
    assert format_text("extends: nowhere.yaml\n", "plan.yaml") == ("extends: nowhere.yaml\n", [])


COMMENTS = st.sampled_from(["", "", "# a comment", "#", "# 'quoted: # twice"])
BLANKS = st.sampled_from(["", "", "\n", "\n\n\n"])
QUOTES = st.sampled_from(["", "'", '"'])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8).filter(
    str.strip
)


def quoted(text: str, quote: str) -> str:
    if quote == "'":
        return "'" + text.replace("'", "''") + "'"
    if quote == '"':
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


@st.composite
def lines(draw: st.DrawFn, text: str, indent: int) -> str:
    """`text` as a line with whatever may stand around it."""
    above = draw(COMMENTS)
    above_indent = draw(st.sampled_from([0, indent]))
    beside = draw(COMMENTS)
    return (
        draw(BLANKS)
        + (f"{' ' * above_indent}{above}\n" if above else "")
        + f"{' ' * indent}{text}{'  ' + beside if beside else ''}\n"
    )


@st.composite
def rules(draw: st.DrawFn, indent: int) -> str:
    entries = draw(st.dictionaries(KEYS, STYLES, min_size=1, max_size=3))
    written = []
    for key, style in entries.items():
        key_quote = draw(st.sampled_from(["'", '"']))
        style_quote = "'" if '"' in style or ", " in style or style == "null" else draw(QUOTES)
        written.append(draw(lines(f"{quoted(key, key_quote)}: {quoted(style, style_quote)}", indent)))
    return "".join(written)


@st.composite
def plans(draw: st.DrawFn) -> str:
    """A plan file as untidy as YAML lets it be."""
    sizes = draw(st.lists(st.sampled_from(["tp_size", "ep_size", "pp_size"]), unique=True))
    sections = [draw(lines(f"{name}:  {draw(st.sampled_from(['2', '0x10', '-1', '~', '']))}", 0)) for name in sizes]
    for name in draw(st.lists(st.sampled_from(["tp_plan", "ep_plan", "fsdp_plan"]), unique=True)):
        head = draw(lines(f"{name}:", 0))
        sections.append(head + draw(rules(draw(st.integers(1, 4)))))
    if draw(st.booleans()):
        items = draw(st.lists(CONDITIONS, min_size=1, max_size=3))
        sections.append(draw(lines("require:", 0)) + "".join(draw(lines(f"- {quoted(i, chr(39))}", 2)) for i in items))
    if draw(st.booleans()):
        sections.append(draw(lines("tp_plan: {}" if not any("tp_plan" in s for s in sections) else "model: null", 0)))
    if draw(st.booleans()):
        sections.append(draw(lines("fsdp_cpu_offload: True", 0)))
    order = draw(st.permutations(sections))
    return draw(st.sampled_from(["", "# header\n\n", "---\n"])) + "".join(order) + draw(COMMENTS)


def comments(text: str) -> list[str]:
    return sorted(line[line.index("#") :].strip() for line in text.split("\n") if "#" in line)


@given(plans())
def test_formatting_keeps_meaning_and_comments_and_settles(text: str) -> None:
    plan, found = parse_text(text, "plan.yaml")
    if plan is None or found:  # nothing but comments
        assert [f.code for f in found] == ["PL003"]
        return
    formatted, _ = format_text(text, "plan.yaml")
    assert formatted is not None
    again, found = parse_text(formatted, "plan.yaml")
    assert not found
    assert again is not None
    assert without_places(again) == without_places(plan)
    assert comments(formatted) == comments(text)
    assert format_text(formatted, "plan.yaml")[0] == formatted


@given(TEXTS)
def test_any_text_survives_as_a_value(text: str) -> None:
    plan, _ = plan_from_mapping({"model": text})
    assert plan is not None
    assert plan.model is not None
    assert plan.model.value == text
    formatted, _ = format_text(plan.sources["<arguments>"], "plan.yaml")
    assert formatted is not None
    again, _ = parse_text(formatted, "plan.yaml")
    assert again is not None
    assert again.model is not None
    assert again.model.value == text
