"""Imports follow the stages of docs/architecture.md, and torch stays where it is allowed."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "planc"
STAGES = (
    "diagnostics", "syntax", "layouts", "ir", "model", "styles", "resolve", "flow", "check", "program", "runtime",
    "verify", "analysis", "api", "cli",
)  # fmt: skip
MAY_IMPORT_TORCH = ("model/building/", "runtime/", "verify/")
TORCH = {"torch", "transformers", "safetensors"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: relative import"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def at_import_time(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported: those outside functions and `if TYPE_CHECKING`."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_follow_the_stages(file: Path) -> None:
    relative = file.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    if own in {"__init__", "__main__"}:
        return
    for node in imports(ast.parse(file.read_text())):
        for name in names(node):
            parts = name.split(".")
            if parts[0] == "planc" and len(parts) > 1 and parts[1] in STAGES:
                assert STAGES.index(parts[1]) <= STAGES.index(own), f"{relative}:{node.lineno} imports {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_torch_stays_where_it_is_allowed(file: Path) -> None:
    relative = file.relative_to(PACKAGE).as_posix()
    if relative.startswith(MAY_IMPORT_TORCH):
        return
    tree = ast.parse(file.read_text())
    lazily = relative.startswith("cli/") or relative in {"analysis.py", "api.py", "__init__.py"}
    for node in at_import_time(tree) if lazily else imports(tree):
        for name in names(node):
            assert name.split(".")[0] not in TORCH, f"{relative}:{node.lineno} imports {name}"


def test_import_planc_is_light() -> None:
    code = "import sys, planc; print([m for m in ('torch', 'transformers', 'networkx', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_dependency_is_used_and_pinned() -> None:
    """What a plain install brings is imported by planc itself; all of it is in constraints.txt, the extras' too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    imported = {
        name.split(".")[0] for file in FILES for node in imports(ast.parse(file.read_text())) for name in names(node)
    }
    mandatory = [_library(text) for text in project["dependencies"]]
    assert {library.split(".")[0] for library in mandatory} - imported == set()
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert {*mandatory, *map(_library, project["optional-dependencies"]["runtime"])} - pinned == set()


def _library(requirement: str) -> str:
    return re.split(r"[<>=\[]", requirement)[0]
