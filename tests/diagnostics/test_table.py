"""Tables, character by character."""

import pytest

from planc.diagnostics.render.table import table


def test_columns_below_their_heads() -> None:
    assert table([("a.*.b", "12"), ("c", "3")], ("key", "count"), right={1}) == (
        "key    count\n"
        "a.*.b     12\n"
        "c          3\n"
    )  # fmt: skip


def test_wide_characters_take_two_cells() -> None:
    assert table([("重み", "x"), ("abcde", "y")]) == "重み   x\nabcde  y\n"


@pytest.mark.parametrize("cell", ["[red]x[/red]", ":smile:", "[0-3]", "\\[", "a" * 500, "https://example.org/{a}"])
def test_cells_are_printed_as_they_are(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert table([(cell, "y")]) == f"{cell}  y\n"


def test_a_row_stays_one_line() -> None:
    assert table([("a\nb\u2028c", "y"), ("d", "")]) == "a b c  y\nd\n"


def test_nothing_is_no_table() -> None:
    assert table([]) == ""
