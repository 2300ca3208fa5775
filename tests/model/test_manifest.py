"""Manifest files: what is read, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from planc.model.errors import ModelError
from planc.model.manifest import Manifest

LINEAR = {"name": "weight", "shape": [4, 2], "dtype": "float32"}


def a_manifest(**changes: Any) -> dict[str, Any]:
    return {
        "name": "toy",
        "class_name": "Toy",
        "modules": [
            {"name": "", "class_name": "Toy"},
            {"name": "layers", "class_name": "ModuleList"},
            {"name": "layers.*", "at": ["0-2"], "class_name": "Layer"},
            {"name": "layers.*.mlp", "at": ["0", "2"], "class_name": "MLP", "parameters": [LINEAR]},
            {"name": "layers.*.mlp", "at": ["1"], "class_name": "MoE", "parameters": [LINEAR]},
            {"name": "head", "class_name": "Linear", "parameters": [LINEAR]},
        ],
        "ties": [["head.weight", "layers.0.mlp.weight"]],
    } | changes


def read(content: object) -> Manifest:
    return Manifest.from_json(json.dumps(content).encode(), "toy.json")


def test_expansion() -> None:
    manifest = read(a_manifest())
    assert list(manifest.modules) == [
        "", "layers", "layers.0", "layers.0.mlp", "layers.1", "layers.1.mlp", "layers.2", "layers.2.mlp", "head",
    ]  # fmt: skip
    assert manifest.modules["layers.1.mlp"].entry.class_name == "MoE"
    assert list(manifest.parameters) == [f"layers.{n}.mlp.weight" for n in range(3)] + ["head.weight"]
    assert list(manifest.modules["head"].parameters) == ["head.weight"]


def test_hash_is_of_the_structure() -> None:
    same = a_manifest(name="other", versions={"torch": "9"}, config={"a": 1}, plans={"tp": {"head": "colwise"}})
    assert read(same).hash == read(a_manifest()).hash
    grouped_otherwise = a_manifest()
    grouped_otherwise["modules"][3:4] = [grouped_otherwise["modules"][3] | {"at": [at]} for at in ("0", "2")]
    assert read(grouped_otherwise).hash == read(a_manifest()).hash
    changes = [{"ties": []}]
    for change in ({"shape": [4, 3]}, {"dtype": "bfloat16"}, {"name": "bias"}):
        modules = a_manifest()["modules"]
        modules[4]["parameters"] = [LINEAR | change]
        changes.append({"modules": modules})
    assert len({read(a_manifest(**change)).hash for change in changes} | {read(a_manifest()).hash}) == 5


def test_canonical_file(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    manifest = read(a_manifest())
    manifest.save(path)
    assert Manifest.load(path).file == manifest.file
    reordered = dict(reversed(a_manifest().items()))
    assert read(reordered).to_json() == path.read_bytes()


def module(**fields: Any) -> dict[str, Any]:
    return {"modules": [{"name": "layers.*", "class_name": "Layer", "at": ["0-2"]} | fields], "ties": []}


HOSTILE = {
    "wrong-type": ({"modules": "all"}, "modules"),
    "wrong-type-deep": (module(parameters=[LINEAR | {"shape": "big"}]), "modules.0.parameters.0.shape"),
    "unknown-field": ({"extra": 1}, "extra"),
    "newer-format": ({"format_version": 2}, "format_version"),
    "negative-size": (module(parameters=[LINEAR | {"shape": [-4]}]), "greater than or equal to 0"),
    "size-beyond-64-bits": (module(parameters=[LINEAR | {"shape": [10**40]}]), "less than or equal to"),
    "no-heads": (module(heads={"role": "key", "count": 0, "size": 0}), "heads.count: Input should be greater"),
    "no-group": (module(parameters=[LINEAR | {"packing": {"dim": 0, "layout": "blocks", "parts": [-1]}}]), "parts.0"),
    "dotted-parameter": (module(parameters=[LINEAR | {"name": "a.b"}]), "name"),
    "only-dots": (module(name="..", at=[]), "name"),
    "astronomic-range": (module(at=["0-999999999"]), "at most 200,000"),
    "astronomic-product": (module(name="a.*.b.*.c.*", at=["0-999999;0-999999;0-999999"]), "at most 200,000"),
    "astronomic-parameters": (
        module(at=["0-99999"], parameters=[LINEAR | {"name": f"w{n}"} for n in range(99)]),
        "9,900,000 parameters",
    ),
    "no-range": (module(at=["all"]), "`all`"),
    "reversed-range": (module(at=["3-1"]), "ends before it starts"),
    "numbers-without-star": (module(name="layers"), "`layers` has 0 layer numbers"),
    "star-without-numbers": (module(at=[]), "`layers.*` has 1 layer numbers"),
    "too-few-stars": (module(at=["0;1"]), "`0;1` has 2"),
    "twice": (module(at=["0-2", "2"]), "`layers.2` twice"),
    "dangling-tie": ({"ties": [["head.weight", "nowhere.weight"]]}, "nowhere.weight"),
}


@pytest.mark.parametrize("changes, says", HOSTILE.values(), ids=HOSTILE)
def test_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as refused:
        read(a_manifest(**changes))
    assert "`toy.json` is not a manifest" in refused.value.message
    assert says in refused.value.message


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"\xff\xfe", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000]
)
def test_refused_before_it_is_an_object(content: bytes) -> None:
    with pytest.raises(ModelError, match="is not a manifest"):
        Manifest.from_json(content, "bad.json")


def test_all_faults_of_one_file_are_counted() -> None:
    with pytest.raises(ModelError, match=r"\(and 2 more\)"):
        read({"name": 1, "class_name": 2, "modules": 3, "ties": 4, "layers": 5})


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't read"):
        Manifest.load(tmp_path / "missing.json")
