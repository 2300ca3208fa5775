"""Carets stand under their tokens whatever the text and the terminal are."""

import io
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Report, Severity
from planc.diagnostics.edits import apply_edits
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen, cells, wrap
from planc.diagnostics.span import Span

FILE = "plan.yaml"


def report(text: str, *places: tuple[str, str], **fields: object) -> Report:
    """A finding whose places are the first tokens of their kind in `text`, the first one primary."""
    spans = [(found(text, token), label) for token, label in places]
    (span, label), labels = spans[0], tuple(Label(*place) for place in spans[1:])
    diagnostic = Diagnostic("PL1", Severity.ERROR, "wrong", span, label, labels, **fields)  # type: ignore[arg-type]
    return Report((diagnostic,), {FILE: text}, FILE)


def found(text: str, token: str) -> Span:
    before, separator, _ = text.partition(token)
    assert separator
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Span(FILE, line, column, line, column + len(token))


def shown(report: Report, screen: Screen | None = None) -> list[str]:
    """The quoted lines and what stands under them, without the header and the details."""
    lines = render("text", [report], screen or Screen()).splitlines()
    return lines[2 : next(i for i, line in enumerate(lines) if line.strip().startswith("=")) - 1]


def under_carets(quoted: str, carets: str) -> str:
    """What of `quoted` stands over the carets, by terminal cells."""
    left = carets.index("^")
    right = left + len(re.match(r"\^+", carets[left:])[0])  # type: ignore[index]
    text, cell = "", 0
    for character in quoted:
        if left <= cell < right and (cell_len(character) or text):
            text += character
        cell += cell_len(character)
    return text


@pytest.mark.parametrize(
    "line",
    [
        "model: token",
        "模型.层: token  # 注",
        "\ttab:\ttoken",
        "e\u0301te\u0301: token",
        "👩‍💻: token",
        "ﬁ½Ⅷ: token",
    ],
)
@pytest.mark.parametrize("width", [None, 80, 20])
def test_carets_stand_under_the_token(line: str, width: int | None) -> None:
    quoted, carets = shown(report(line, ("token", "")), Screen(width))
    if "👩" in line:  # rich measures the joined pair as one, this test's own count doesn't
        assert carets.index("^") == cell_len(quoted[: quoted.index("token")])
        return
    assert under_carets(quoted, carets) == "token"


def test_wide_token() -> None:
    quoted, carets = shown(report("x: 模型", ("模型", "label")))
    assert (quoted, carets) == ("1 | x: 模型", "  |    ^^^^ label")


def test_labels_of_one_line_hang_from_bars() -> None:
    assert shown(report("aaa: bbb ccc", ("bbb", "is b"), ("aaa", "is a"), ("ccc", "is c"))) == [
        "1 | aaa: bbb ccc",
        "  | ---  ^^^ --- is c",
        "  | |    |",
        "  | |    is b",
        "  | |",
        "  | is a",
    ]


def test_a_token_within_another_keeps_its_carets() -> None:
    assert shown(report("model.layers: x", ("layers", "here"), ("model.layers", "in this"))) == [
        "1 | model.layers: x",
        "  | ------^^^^^^ here",
        "  | |",
        "  | in this",
    ]


def test_distant_lines_are_parted_and_close_ones_joined() -> None:
    text = "".join(f"k{i}: v\n" for i in range(12))
    assert shown(report(text, ("k0", ""), ("k2", ""), ("k11", ""))) == [
        " 1 | k0: v",
        "   | ^^",
        " 2 | k1: v",
        " 3 | k2: v",
        "   | --",
        "...",
        "12 | k11: v",
        "   | ---",
    ]


def test_an_end_of_file_has_a_caret() -> None:
    diagnostic = Diagnostic("PL1", Severity.ERROR, "wrong", Span(FILE, 1, 5, 1, 5))
    assert shown(Report((diagnostic,), {FILE: "tp: "})) == ["1 | tp:", "  |     ^"]


def test_a_span_of_several_lines_is_marked_on_its_first() -> None:
    diagnostic = Diagnostic("PL1", Severity.ERROR, "wrong", Span(FILE, 1, 4, 2, 3), "here")
    assert shown(Report((diagnostic,), {FILE: "a: {b\n  }"})) == ["1 | a: {b", "  |    ^^ here"]


@pytest.mark.parametrize("width", [None, 30, 60, 100])
def test_a_long_line_is_cut_around_its_caret(width: int | None) -> None:
    text = "x" * 5000 + " token " + "y" * 5000
    quoted, carets = shown(report(text, ("token", "label")), Screen(width))[:2]
    assert under_carets(quoted, carets) == "token"
    assert quoted.startswith("1 | …x") and quoted.endswith("y…")
    assert cell_len(quoted) <= (width or 204)


@pytest.mark.parametrize("width", [24, 40, 60])
def test_narrow_terminals_wrap_text_but_never_break_words(width: int) -> None:
    word = "an explanation of some length that no narrow terminal holds on one line"
    wide = report("key: value", ("value", word), ("key", word), notes=(word,), help=(word, "model.layers." * 10))
    lines = render("text", [wide], Screen(width)).splitlines()[1:-2]
    assert max(cell_len(line) for line in lines if "model.layers" not in line and "docs" not in line) <= max(width, 31)
    joined = " ".join(re.sub(r"^[ 0-9]*[|=]?( *(note|help):)?[ |]*", "", line) for line in lines)
    assert joined.count(word) == 4
    assert "model.layers." * 10 in joined


def test_control_characters_can_not_reach_the_terminal() -> None:
    evil = "key: \x1b[31mred\u202egnp\u2066 \x07\x7f"
    hostile = report(evil, ("red", "\x1b[2J"), notes=("\x1b]0;title\x07",), targets=("\u202eabc",), target_count=1)
    text = render("text", [hostile], Screen(80)) + render("concise", [hostile])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert r"key: \x1b[31mred\u202egnp\u2066 \x07\x7f" in text


def test_a_message_can_not_forge_a_finding() -> None:
    forged = Report((Diagnostic("PL1", Severity.NOTE, "fine\nplan.yaml:1:1: error[PL2]: forged"),), {}, FILE)
    assert render("concise", [forged]) == "plan.yaml: note[PL1]: fine plan.yaml:1:1: error[PL2]: forged\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_other_encodings_keep_the_carets_in_place(encoding: str) -> None:
    quoted, carets = shown(report("模型é: token" + "x" * 300, ("token", "层")), Screen(encoding=encoding))
    "\n".join((quoted, carets)).encode(encoding)
    assert under_carets(quoted, carets) == "token"
    assert r"\u6a21" in quoted and r"\u5c42" in carets


def test_a_fix_shows_the_lines_it_changes() -> None:
    text = "a: 1\nb: 2\nc: 3\n"
    edits = (Edit(found(text, "1"), "9"), Edit(found(text, "b: 2\n"), ""))
    assert apply_edits(text, edits) == "a: 9\nc: 3\n"
    lines = render("text", [report(text, ("1", ""), fix=Fix("mend it", edits, safe=True))]).splitlines()
    start = lines.index("  = fix: mend it")
    assert lines[start + 1 : start + 5] == ["1 - a: 1", "2 - b: 2", "1 + a: 9", "  = docs: planc explain PL1"]


def test_edits_must_not_overlap() -> None:
    span = Span(FILE, 1, 1, 1, 3)
    with pytest.raises(ValueError, match="overlap"):
        apply_edits("abc", [Edit(span, "x"), Edit(Span(FILE, 1, 2, 1, 4), "y")])
    with pytest.raises(ValueError, match="outside"):
        apply_edits("abc", [Edit(Span(FILE, 7, 1, 7, 2), "x")])


def test_targets_are_named_up_to_a_few() -> None:
    many = report("a: b", ("a", ""), targets=("l.0", "l.1", "l.2", "l.3"), target_count=48)
    assert "  = where: l.0, l.1, l.2 and 45 more\n" in render("text", [many])
    two = report("a: b", ("a", ""), targets=("l.0", "l.1"), target_count=2)
    assert "  = where: l.0, l.1\n" in render("text", [two])


class Stream(io.StringIO):
    encoding = "utf-8"

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "environ", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours(terminal: bool, environ: dict[str, str], colour: bool) -> None:
    screen = Screen.of(Stream(terminal), environ)
    assert screen.colour is colour
    assert ("\x1b[" in render("text", [report("a: b", ("a", "x"))], screen)) is colour


def test_colours_change_nothing_else(broken: Report) -> None:
    painted = render("text", [broken], Screen(colour=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render("text", [broken])


def test_width_is_that_of_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "37")
    assert Screen.of(Stream(True)).width == 37
    assert Screen.of(Stream(False)).width is None


@pytest.mark.parametrize("text", ["", "abc", "é", "模型", "e\u0301", "a模"])
def test_cells(text: str) -> None:
    assert cells(text) == cell_len(text)


def test_wrap_by_cells() -> None:
    assert wrap("模型 模型 模型", 9) == ["模型 模型", "模型"]
    assert wrap("a" * 20 + " b", 5) == ["a" * 20, "b"]


def test_a_plain_report_needs_no_rich() -> None:
    code = (
        "import sys; from planc.diagnostics.render import render; from planc.diagnostics.diagnostic import *;"
        "from planc.diagnostics.span import Span;"
        "r = Report((Diagnostic('PL1', Severity.ERROR, 'x × y', Span('f', 1, 1, 1, 2)),), {'f': 'é' * 400});"
        "[render(n, [r]) for n in ('text', 'concise')]; print([m for m in sys.modules if m.split('.')[0] == 'rich'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
