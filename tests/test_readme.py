"""The README shows what planc really prints.

`PLANC_UPDATE=1 pytest tests/test_readme.py` rewrites the outputs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
# A plan with its file name as first line's comment, and a command with what it prints.
PLAN = re.compile(r"```yaml\n(# (?P<file>\S+\.yaml)\n.*?)```", re.DOTALL)
COMMAND = re.compile(r"```console\n\$ planc (?P<arguments>.*?)\n(?P<output>.*?)```", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for match in PLAN.finditer(README.read_text()):
        (tmp_path / match["file"]).write_text(match[1])
    return tmp_path


def output(folder: Path, arguments: str) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "planc", *arguments.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_outputs_are_exact(folder: Path) -> None:
    text = README.read_text()
    fresh = COMMAND.sub(
        lambda m: f"```console\n$ planc {m['arguments']}\n{output(folder, m['arguments'])}```",
        text,
    )
    if os.environ.get("PLANC_UPDATE"):
        README.write_text(fresh)
        return
    assert fresh == text


def test_readme_shows_a_plan_and_its_output() -> None:
    text = README.read_text()
    assert PLAN.search(text) and COMMAND.search(text)
