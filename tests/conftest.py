"""Fixtures that every folder of tests may use."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def compare(file: Path, text: str) -> None:
    """Assert that `file` holds exactly `text`; `PLANC_UPDATE=1` writes it instead."""
    if os.environ.get("PLANC_UPDATE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"{file} is missing; PLANC_UPDATE=1 writes it"
    assert text == file.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def registrations_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone afterwards: other tests compare lists of all names."""
    from planc.styles import modules, registry, theirs

    for name in ("_registered_styles", "_registered_ep_implementations"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    before = [mapping for mapping in (theirs.styles(), theirs.ep_implementations()) if mapping]
    for mapping in before:
        monkeypatch.setattr(type(mapping), "_global_mapping", dict(type(mapping)._global_mapping))
    monkeypatch.setenv(modules.VARIABLE, "")
    yield
    if not before:  # transformers was first imported by the test
        for mapping, custom in (
            (theirs.styles(), registry._their_styles()),
            (theirs.ep_implementations(), registry._their_ep_implementations()),
        ):
            for name in custom:
                del type(mapping)._global_mapping[name]


@pytest.fixture
def golden() -> Callable[[Path, str], None]:
    return compare
