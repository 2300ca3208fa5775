"""Training state in one process: damaged, foreign and hostile folders; what a rank holds as chunks."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import FileSystemReader

import planc
from planc.runtime.checkpoint.metadata import METADATA_NAME, read_metadata, shapes
from planc.runtime.checkpoint.pieces import Pieces
from planc.runtime.checkpoint.training import SCALARS_NAME
from planc.runtime.errors import CheckpointError
from tests.checkpoint.support import CUTS, picked, regions
from tests.checkpoint.test_saving import file_limit


def trained(width: int = 8, lr: float = 0.1, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.7, 0.8))
    for step in range(steps):
        one_step(model, optimizer, step)
    return model, optimizer


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    planc.save_training(*trained(), tmp_path / "state", step=2)
    return tmp_path / "state"


def test_the_next_steps_are_those_of_an_undisturbed_run(folder: Path) -> None:
    model, optimizer = trained()
    resumed, other = trained(lr=1.0, steps=0)
    assert planc.load_training(resumed, other, folder) == 2
    for step in range(2, 4):
        one_step(model, optimizer, step)
        one_step(resumed, other, step)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters(), strict=True))
    assert other.param_groups[0]["betas"] == (0.7, 0.8)


def test_without_an_optimizer(folder: Path) -> None:
    model, _ = trained(steps=0)
    assert planc.load_training(model, None, folder) == 2
    assert torch.equal(model.get_parameter("0.weight"), trained()[0].get_parameter("0.weight"))


def test_torch_reads_it(folder: Path) -> None:
    stored = shapes(FileSystemReader(folder).read_metadata())
    assert stored["model.0.weight"] == (8, 4)
    assert stored["optimizer.state.0.weight.exp_avg"] == (8, 4)


def test_another_shape_changes_nothing(folder: Path) -> None:
    model, optimizer = trained(width=9, steps=0)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    with pytest.raises(CheckpointError, match=r"`model.0.weight` has shape \[8, 4\], the model \[9, 4\]"):
        planc.load_training(model, optimizer, folder)
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def test_missing_and_superfluous_tensors(folder: Path) -> None:
    deeper = nn.Sequential(*trained(steps=0)[0], nn.Linear(4, 4))
    with pytest.raises(CheckpointError, match=r"lacks the tensor `model.2.bias`, `model.2.weight`"):
        planc.load_training(deeper, None, folder)
    with pytest.raises(
        CheckpointError, match=r"holds `model.1.bias`, `model.1.weight`, which the model has no place for"
    ):
        planc.load_training(nn.Sequential(nn.Linear(4, 8)), None, folder)


def damage_json(folder: Path) -> None:
    (folder / SCALARS_NAME).write_text('{"step": "many"}')


def lose_json(folder: Path) -> None:
    (folder / SCALARS_NAME).unlink()


def lose_metadata(folder: Path) -> None:
    (folder / METADATA_NAME).unlink()


def cut_metadata(folder: Path) -> None:
    (folder / METADATA_NAME).write_bytes((folder / METADATA_NAME).read_bytes()[:-20])


def data_file(folder: Path) -> Path:
    return next(folder.glob("*.distcp"))


def lose_data(folder: Path) -> None:
    data_file(folder).unlink()


def cut_data(folder: Path) -> None:
    data_file(folder).write_bytes(data_file(folder).read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_json, r"training.json is damaged"),
        (lose_json, r"holds no training state: .*training.json is missing"),
        (lose_metadata, r"holds no distributed checkpoint: .*\.metadata is missing"),
        (cut_metadata, r"\.metadata is damaged"),
        (lose_data, r"distcp is missing, with `"),
        (cut_data, r"distcp is truncated: `.*` ends at byte"),
    ],
)
def test_damage_names_the_file(damage: Any, says: str, folder: Path) -> None:
    damage(folder)
    model, optimizer = trained(steps=0)
    with pytest.raises(CheckpointError, match=says):
        planc.load_training(model, optimizer, folder)


class Hostile:
    def __reduce__(self) -> Any:
        return (os.system, ("touch hacked",))


def test_hostile_metadata_isnt_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / METADATA_NAME).write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CheckpointError, match=r"it names posix.system, which no metadata needs"):
        read_metadata(folder)
    assert not (tmp_path / "hacked").exists()


def test_metadata_may_only_name_files_of_its_folder(folder: Path) -> None:
    metadata = read_metadata(folder)
    for place in metadata.storage_data.values():
        place.relative_path = "../outside"
    (folder / METADATA_NAME).write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"in `../outside`, outside of the folder"):
        read_metadata(folder)


def test_a_full_disk_keeps_the_last_state(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    model, optimizer = trained(width=8)
    with file_limit(100), pytest.raises(CheckpointError, match=r"File too large|unexpected pos"):
        planc.save_training(model, optimizer, folder, step=3)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(folder.parent) == ["state"]


def test_pieces_are_chunks_of_the_whole() -> None:
    whole = torch.arange(7 * 6, dtype=torch.float32).reshape(7, 6)
    assert len(CUTS) > 5
    for region in regions((7, 6)):
        pieces = Pieces(whole)
        pieces.local, pieces.region = picked(whole, region), region
        covered = 0
        for item in pieces.__create_write_items__("weight", pieces):
            assert item.tensor_data is not None
            chunk = item.tensor_data.chunk
            block = whole[tuple(slice(o, o + s) for o, s in zip(chunk.offsets, chunk.sizes, strict=True))]
            assert torch.equal(pieces.__get_tensor_shard__(item.index), block)
            covered += block.numel()
        assert covered == region.count
