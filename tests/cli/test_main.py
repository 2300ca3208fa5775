"""What the process does around a command."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from planc.cli.main import cli, run

MODEL = "qwen3-30b-a3b"
PLANC = [sys.executable, "-m", "planc"]
ROOT = Path(__file__).parent.parent.parent


def test_help_lists_every_command(planc: Callable[..., Any]) -> None:
    result = planc("--help")
    assert result.status == 0
    assert all(f"  {name} " in result.out for name in ("check", "explain", "manifest", "resolve"))


def test_every_command_has_help(planc: Callable[..., Any]) -> None:
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        result = planc(name, "--help")
        assert result.status == 0
        assert result.out.startswith(f"Usage: planc {name}")


def test_version(planc: Callable[..., Any]) -> None:
    import planc as package

    assert planc("--version").out == f"planc {package.__version__}\n"


@pytest.mark.parametrize(("word", "says"), [("chek", "did you mean `check`?"), ("zzz", "no command `zzz`")])
def test_unknown_commands(word: str, says: str, planc: Callable[..., Any]) -> None:
    result = planc(word)
    assert (result.status, result.out) == (2, "")
    assert says in result.err


def test_own_failures_are_said_in_one_line(
    planc: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a\nbug")

    monkeypatch.setattr("planc.cli.inputs.analyse", fail)
    result = planc("check", MODEL)
    assert (result.status, result.out) == (3, "")
    assert result.err.splitlines()[0] == "planc failed: RuntimeError: a bug"
    monkeypatch.setenv("PLANC_TRACEBACK", "1")
    assert run(["check", MODEL]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_failure() -> None:
    with subprocess.Popen(
        [*PLANC, "explain", "--all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_a_full_disk_is_said() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*PLANC, "explain", "--all"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (2, "Error: can't write to stdout: No space left on device\n")


def test_a_closed_stdout_is_no_failure() -> None:
    result = subprocess.run(f"exec {' '.join(PLANC)} explain PL301 >&-", shell=True, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (0, b"")


def test_interrupts_are_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("planc.cli.inputs.analyse", interrupt)
    assert run(["check", MODEL]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", ["text", "concise", "json", "sarif", "github"])
def test_any_encoding_of_stdout(encoding: str, name: str, tmp_path: Path) -> None:
    plan = tmp_path / "层.yaml"
    plan.write_text("tp_plan: {模型.é: 'ü…'}\n", encoding="utf-8")
    result = subprocess.run(
        [*PLANC, "check", MODEL, plan.name, "--tp-size", "2", "--output-format", name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert (result.returncode, result.stderr) == (1, b"")
    assert result.stdout.decode(encoding)


def test_colours_can_be_forced_and_forbidden(tmp_path: Path) -> None:
    def out(**environ: str) -> str:
        clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
        words = [*PLANC, "check", MODEL, "--tp-size", "8"]
        return subprocess.run(words, env={**clean, **environ}, capture_output=True, text=True).stdout

    assert "\x1b[" in out(FORCE_COLOR="1")
    assert "\x1b[" not in out()
    assert "\x1b[" not in out(FORCE_COLOR="1", NO_COLOR="1")


def test_pre_commit_hooks_call_commands_that_exist() -> None:
    hooks = YAML(typ="safe").load(ROOT / ".pre-commit-hooks.yaml")
    commands = cli.list_commands(None)  # type: ignore[arg-type]
    for hook in hooks:
        program, command = hook["entry"].split()
        assert program == "planc" and command in commands, hook["id"]


@pytest.mark.parametrize(
    "words", [("verify", "llama-3.1-8b", "--tp-size", "2"), ("apply", "llama-3.1-8b", "--tp-size", "2", "--nproc", "2")]
)
def test_without_torch_it_says_what_to_install(words: tuple[str, ...]) -> None:
    """Without the extra `runtime`: every import of torch and of transformers fails."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None; "
        "from planc.cli.main import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert "isn't installed: pip install 'planc[runtime]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
