"""The installed wheel carries its grammars, bundled models and documentation, and runs away from the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """planc's wheel, unpacked into a folder of its own."""
    work = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", work, ROOT], check=True)
    (wheel,) = work.glob("planc-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", work / "site", wheel], check=True)
    return work / "site"


def python(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PLANC_CACHE_DIR": str(installed / "cache")}
    return subprocess.run([sys.executable, *arguments], cwd=installed, env=environment, capture_output=True, text=True)


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(installed, "-m", "planc", *arguments)


def test_it_is_the_installed_package_that_runs(installed: Path) -> None:
    found = python(installed, "-c", "import planc; print(planc.__file__)").stdout
    assert Path(found.strip()) == installed / "planc" / "__init__.py"


def test_runs_the_installed_package(installed: Path) -> None:
    plan = installed / "plan.yaml"
    plan.write_text("tp_size: 2\ntp_plan:\n  model.layers.[0-1].self_attn.q_proj: colwise(\n")
    result = run(installed, "check", "qwen3-30b-a3b", "plan.yaml", "--output-format", "concise")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("plan.yaml:3:")


def test_carries_every_grammar(installed: Path) -> None:
    carried = {file.name for file in (installed / "planc" / "grammars").iterdir()}
    assert carried == {file.name for file in (ROOT / "grammars").iterdir()}


def test_checks_a_bundled_model(installed: Path) -> None:
    result = run(installed, "check", "qwen3-30b-a3b", "--tp-size", "4")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
