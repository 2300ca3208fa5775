"""Running commands in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from planc.cli.main import run

MODEL = "qwen3-30b-a3b"


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def planc(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*words: object) -> Result:
        status = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(status, captured.out, captured.err)

    return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
