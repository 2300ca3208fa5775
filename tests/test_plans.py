"""Plans and planc's exact words about them.

Each `err/*.yaml` starts with a comment that holds its command line (`# planc check qwen3-30b-a3b --tp-size 8`, the file
itself goes to its end) and has the whole output beside it in `*.out`. Each `ok/*.yaml` gets no finding, notes apart.
`PLANC_UPDATE=1 pytest tests/test_plans.py` writes the outputs; read them before you commit them.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from planc.cli.main import run
from planc.diagnostics.diagnostic import Severity
from planc.diagnostics.render.summary import summary

HERE = Path(__file__).parent
WRONG = sorted((HERE / "err").glob("*.yaml"))
RIGHT = sorted((HERE / "ok").glob("*.yaml"))


def words(plan: Path) -> list[str]:
    """The command line of `plan`'s first line, with the plan itself at its end."""
    first = plan.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
    prefix = "# planc check"
    assert first.startswith(prefix), f"{plan} must start with `{prefix} …`"
    return ["check", *shlex.split(first.removeprefix(prefix)), plan.name]


@pytest.mark.parametrize("plan", WRONG, ids=lambda plan: plan.stem)
def test_wrong_plans(
    plan: Path,
    golden: Callable[[Path, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(plan.parent)
    status = run(words(plan))
    output = capsys.readouterr()
    golden(plan.with_suffix(".out"), output.out)
    assert status in (1, 2), "an err file must fail; give it --strict where it only warns"
    assert output.err == ""


@pytest.mark.parametrize("plan", RIGHT, ids=lambda plan: plan.stem)
def test_right_plans(plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plan.parent)
    status = run([*words(plan), "--strict"])
    output = capsys.readouterr().out
    assert status == 0, output
    assert not any(f"{severity}[" in output for severity in Severity if severity is not Severity.NOTE), output


def test_every_output_belongs_to_a_plan() -> None:
    assert {out.stem for out in (HERE / "err").glob("*.out")} == {plan.stem for plan in WRONG}


def test_there_are_plans_and_a_summary() -> None:
    assert WRONG and RIGHT
    assert summary([]) == "0 plans checked: nothing to report"
