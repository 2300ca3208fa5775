"""The documentation of syntax codes: its examples have the fault, and what to use instead has none."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from planc.syntax import codes
from planc.syntax.parser import parse_text

KINDS = [
    kind
    for kind in vars(codes).values()
    if isinstance(kind, type) and issubclass(kind, codes._Defined) and kind is not codes._Defined
]
OWN = {kind.code.code: kind.code for kind in KINDS}
# Not about one text: files that aren't there, or several files.
ABOUT_FILES = {"PL002", "PL011", "PL012", "PL013"}


def blocks(text: str) -> list[str]:
    """Every run of lines indented by four spaces."""
    return [dedent(block) for block in re.findall(r"(?:^ {4}.*\n?|^\n(?= {4}))+", text, re.MULTILINE)]


@pytest.mark.parametrize("code", sorted(OWN))
def test_documentation_has_its_parts(code: str) -> None:
    documentation = OWN[code].documentation
    for part in ("\n\nExample:\n\n    ", "\n\nUse instead"):
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
    for kind in KINDS:
        assert re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() == kind.code.name
