"""Progress goes to a terminal's stderr, and nowhere else."""

import io
import sys

import pytest

from planc.cli.progress import progress


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def told(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(2) as begin:
        begin("first [bold]")
        begin("sec\x1bond")
        print("a result")
    assert sys.stderr is stream
    return stream.getvalue()


def test_a_terminal_shows_what_is_in_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    text = told(True, monkeypatch)
    assert "sec\\x1bond" in text and "1/2" in text
    assert text.endswith("\x1b[2K")  # the last thing it does is to erase its line
    assert capsys.readouterr().out == "a result\n"


def test_elsewhere_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(False, monkeypatch) == ""
    assert capsys.readouterr().out == "a result\n"


def test_a_failure_ends_it_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(ValueError, match="in work"), progress(1) as begin:
        begin("first")
        raise ValueError("in work")
    assert stream.getvalue().endswith("\x1b[2K") and "\x1b[?25h" in stream.getvalue()
