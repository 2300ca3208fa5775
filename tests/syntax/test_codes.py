"""The documentation of syntax codes: its examples have the fault, and what to use instead has none."""

import re
from pathlib import Path

import pytest

from planc.diagnostics.codes import CODES
from planc.syntax import codes
from planc.syntax.parser import parse_text

OWN = {code.code: code for code in CODES.values() if code.code.startswith("PL0")}
# Not about one text: files that aren't there, or several files.
ABOUT_FILES = {"PL002", "PL011", "PL012", "PL013"}


def blocks(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("code", sorted(OWN))
def test_documentation_has_its_parts(code: str) -> None:
    documentation = OWN[code].documentation
    for part in ("## What it does\n", "## Why is this bad?\n", "## Example\n", "Use instead"):
        assert part in documentation


@pytest.mark.parametrize("code", sorted(OWN.keys() - ABOUT_FILES))
def test_examples(code: str) -> None:
    example, _, instead = OWN[code].documentation.partition("Use instead")
    (faulty,) = blocks(example)
    _, found = parse_text(faulty, "plan.yaml")
    assert {f.code for f in found} == {code}
    for text in blocks(instead):
        assert parse_text(text, "plan.yaml")[1] == []


def test_every_code_is_reached_by_a_test() -> None:
    """Each code stands in a `.out` file of `err/`, but those about files, which `test_hostile.py` provokes."""
    folder = Path(__file__).parent
    expected = "".join(path.read_text() for path in (folder / "err").glob("*.out"))
    hostile = (folder / "test_hostile.py").read_text()
    assert {code for code in OWN if code not in expected} <= {code for code in OWN if code in hostile}


def test_names_are_those_of_their_classes() -> None:
    for name, cls in vars(codes).items():
        if isinstance(cls, type) and issubclass(cls, codes._Defined) and cls is not codes._Defined:
            assert re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() == cls.code.name
