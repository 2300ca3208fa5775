"""The cache of built manifests."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from planc.model import cache as caching
from planc.model.building import builder
from planc.model.cache import Cache
from planc.model.manifest import Manifest
from planc.model.source import ConfigSource
from planc.model.sources import load_manifest
from planc.model.versions import installed_version

CONFIG = {"model_type": "qwen3", "num_hidden_layers": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "manifests"


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was really built."""
    names: list[str] = []
    build = builder.build_manifest

    def counted(model: Any, name: str, trace: bool = True) -> Any:
        names.append(name)
        return build(model, name, trace=False)

    monkeypatch.setattr(builder, "build_manifest", counted)
    return names


def test_built_once(folder: Path, model: str, builds: list[str]) -> None:
    first = load_manifest(model)
    assert load_manifest(model).file == first.file
    assert len(builds) == len(list(folder.iterdir())) == 1
    load_manifest(model, cache=False)
    assert len(builds) == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x00\xff", b'{"modules": []}', None])
def test_damaged_entries_are_written_anew(folder: Path, model: str, builds: list[str], damage: bytes | None) -> None:
    good = load_manifest(model)
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-100] if damage is None else damage)
    assert load_manifest(model).file == good.file
    assert Manifest.load(entry).file == good.file
    assert len(builds) == 2


def test_each_thing_that_decides_has_an_entry_of_its_own(
    folder: Path, model: str, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_manifest(model)
    load_manifest(model, config={"hidden_size": 64})
    version = caching.installed_version
    for library in ("torch", "transformers"):
        caching._builders.cache_clear()
        monkeypatch.setattr(caching, "installed_version", lambda n, lib=library: "9.9" if n == lib else version(n))
        load_manifest(model)
    caching._builders.cache_clear()
    assert len(builds) == len(list(folder.iterdir())) == 4


def test_the_name_decides_nothing(folder: Path, model: str, builds: list[str]) -> None:
    load_manifest(model)
    by_file = load_manifest(f"{model}/config.json")
    assert by_file.file.name == f"{model}/config.json"
    assert len(builds) == 1


def test_a_folder_that_cannot_be_written_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLANC_CACHE_DIR", str(tmp_path / "file"))
    assert load_manifest(model).parameters


def test_a_write_that_fails_leaves_nothing(folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    manifest = load_manifest(model, cache=False)
    monkeypatch.setattr("os.replace", full)
    Cache().put(ConfigSource("x", CONFIG), manifest)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"PLANC_CACHE_DIR": "/one", "XDG_CACHE_HOME": "/two"}, "/one/manifests"),
        ({"XDG_CACHE_HOME": "/two"}, "/two/planc/manifests"),
        ({"HOME": "/home/me"}, "/home/me/.cache/planc/manifests"),
        ({"PLANC_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/planc/manifests"),
    ],
)
def test_where_it_lies(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLANC_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Cache().folder == Path(expected)


def test_versions_are_those_of_the_metadata() -> None:
    for library in ("torch", "transformers", "pydantic", "planc"):
        assert installed_version(library) == importlib.metadata.version(library)
    assert installed_version("no-such-library") is None
