"""Checkpoint folders: what is read, and what is said of damaged ones."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from planc.layouts.placement import Shard, StridedShard
from planc.program.placements import whole
from planc.runtime.checkpoint.index import INDEX_NAME, SINGLE_NAME
from planc.runtime.errors import CheckpointError
from planc.runtime.sources import RandomWeights, SafetensorsFolder

WEIGHT = torch.arange(12 * 5, dtype=torch.float32).reshape(12, 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint in two files."""
    save_file({"a.weight": WEIGHT}, tmp_path / "one.safetensors")
    save_file({"b.weight": WEIGHT.bfloat16(), "b.bias": torch.zeros(0)}, tmp_path / "two.safetensors")
    files = {"a.weight": "one.safetensors", "b.weight": "two.safetensors", "b.bias": "two.safetensors"}
    write_index(tmp_path, files)
    return tmp_path


def write_index(folder: Path, files: dict[str, str]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": files}))


def test_reads_only_the_region_and_counts_it(folder: Path) -> None:
    source = SafetensorsFolder(folder)
    region = whole((12, 5)).shard(Shard(0), 4, 3)
    assert torch.equal(source.read("a.weight", region), WEIGHT[9:])
    assert source.bytes_read == 3 * 5 * 4
    source.read("b.weight", region)
    assert source.bytes_read == 3 * 5 * 4 + 3 * 5 * 2


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        ([(StridedShard(0, 2), 2, 1)], WEIGHT[[3, 4, 5, 9, 10, 11]]),
        ([(StridedShard(0, 2), 2, 1), (Shard(1), 2, 0)], WEIGHT[[3, 4, 5, 9, 10, 11]][:, :3]),
        ([(StridedShard(0, 3), 2, 0), (StridedShard(1, 2), 2, 0)], WEIGHT[[0, 1, 4, 5, 8, 9]][:, [0, 1, 3]]),
        ([(Shard(1), 4, 3)], WEIGHT[:, 5:]),
        ([], WEIGHT),
    ],
)
def test_regions_of_several_pieces(folder: Path, shards: list[tuple[Shard, int, int]], expected: torch.Tensor) -> None:
    region = whole((12, 5))
    for placement, ranks, index in shards:
        region = region.shard(placement, ranks, index)
    found = SafetensorsFolder(folder).read("a.weight", region)
    assert found.shape == expected.shape
    assert torch.equal(found, expected)


def test_a_tensor_without_elements(folder: Path) -> None:
    assert SafetensorsFolder(folder).read("b.bias", whole((0,))).shape == (0,)


def test_names_and_shapes_need_no_read(folder: Path) -> None:
    source = SafetensorsFolder(folder)
    assert set(source) == {"a.weight", "b.weight", "b.bias"}
    assert source.shape("b.weight") == (12, 5)
    assert "c.weight" not in source
    assert source.bytes_read == 0


def truncate(folder: Path) -> None:
    path = folder / "one.safetensors"
    path.write_bytes(path.read_bytes()[:-7])


def remove(folder: Path) -> None:
    (folder / "one.safetensors").unlink()


def garble(folder: Path) -> None:
    (folder / "one.safetensors").write_bytes(b"\xff" * 64)


def promise_more(folder: Path) -> None:
    write_index(folder, {"a.weight": "two.safetensors"})


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (truncate, "one.safetensors is damaged or truncated"),
        (remove, "one.safetensors is missing"),
        (garble, "one.safetensors is damaged or truncated"),
        (promise_more, "two.safetensors lacks the tensor `a.weight` of the index"),
    ],
)
def test_damage_names_the_file(folder: Path, damage: Callable[[Path], None], says: str) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=says):
        SafetensorsFolder(folder).read("a.weight", whole((12, 5)))


@pytest.mark.parametrize("file", ["../one.safetensors", "/etc/passwd", "pytorch_model.bin", "sub/one.safetensors"])
def test_an_index_names_files_of_its_folder_only(folder: Path, file: str) -> None:
    write_index(folder, {"a.weight": file})
    with pytest.raises(CheckpointError, match="no safetensors file of this folder"):
        SafetensorsFolder(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "\x00"])
def test_an_index_that_is_none(folder: Path, text: str) -> None:
    (folder / INDEX_NAME).write_text(text)
    with pytest.raises(CheckpointError, match="is no index"):
        SafetensorsFolder(folder)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"neither .* nor {SINGLE_NAME}; pickled"):
        SafetensorsFolder(tmp_path)
    with pytest.raises(CheckpointError, match="is not a folder"):
        SafetensorsFolder(tmp_path / "none")


def test_random_weights_depend_on_name_and_seed_alone() -> None:
    shapes = {"a": (12, 5), "b": (12, 5), "norm": (12,)}
    source = RandomWeights(shapes, seed=1)
    a = source.read("a", whole((12, 5)))
    assert torch.equal(source.read("a", whole((12, 5)).shard(Shard(0), 2, 1)), a[6:])
    assert not torch.equal(a, source.read("b", whole((12, 5))))
    assert not torch.equal(a, RandomWeights(shapes, seed=2).read("a", whole((12, 5))))
    assert (source.read("norm", whole((12,))) - 1).abs().max() < 0.2
