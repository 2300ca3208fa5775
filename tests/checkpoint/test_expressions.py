"""Recorded tensors: any region of what operations make of stored tensors is what the operations make of values."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from planc.program.placements import Region, whole
from planc.runtime.checkpoint import expressions
from planc.runtime.checkpoint.expressions import boxes_of, runs_of
from planc.runtime.checkpoint.recording import NotFollowedError, Recorded, recorded
from tests.checkpoint.support import picked, regions

STORED = {
    "a": torch.arange(4 * 6 * 5, dtype=torch.float32).reshape(4, 6, 5),
    "b": torch.arange(1000, 1000 + 4 * 6 * 5, dtype=torch.float32).reshape(4, 6, 5),
    "flat": torch.arange(24, dtype=torch.float32),
    "scalar": torch.tensor(3.0),
}
Operation = Callable[..., Any]
# What converters of transformers do, and what they are made of: on `a` and `b`, the result is one tensor.
OPERATIONS: dict[str, Operation] = {
    "stack": lambda a, b: torch.stack([a, b]),
    "stack inside": lambda a, b: torch.stack([a, b, a], dim=2),
    "cat": lambda a, b: torch.cat([a, b], dim=1),
    "cat last": lambda a, b: torch.cat([a, b, a], dim=-1),
    "chunk": lambda a, b: a.chunk(3, dim=1)[1].contiguous(),
    "chunk uneven": lambda a, b: a.chunk(2, dim=-1)[1],
    "split": lambda a, b: torch.split(a, [1, 4, 1], dim=1)[1],
    "transpose": lambda a, b: a.transpose(0, 2).contiguous(),
    "permute": lambda a, b: a.permute(2, 0, 1),
    "slices": lambda a, b: a[1:3, -4:, :2],
    "select": lambda a, b: a[2],
    "select last": lambda a, b: a[:, -1],
    "unbind": lambda a, b: torch.unbind(a, dim=1)[3],
    "squeeze": lambda a, b: a[1:2].squeeze(0),
    "unsqueeze": lambda a, b: a.unsqueeze(1).unsqueeze(-1),
    "flatten": lambda a, b: a.flatten(0, 1),
    "flatten all": lambda a, b: a.reshape(-1),
    "unflatten": lambda a, b: a.unflatten(1, (2, 3)),
    "regroup": lambda a, b: a.reshape(8, 15),
    "many to many": lambda a, b: a.reshape(3, 8, 5),
    "interleave": lambda a, b: a.reshape(4, 3, 2, 5).transpose(1, 2).reshape(4, 6, 5).contiguous(),
    "deinterleave": lambda a, b: a.reshape(4, 2, 3, 5).transpose(1, 2).reshape(4, 6, 5).contiguous(),
    "rope": lambda a, b: a.reshape(24, 5).view(2, 6, 2, 5).transpose(1, 2).reshape(24, 5),
    "experts": lambda a, b: torch.cat([torch.stack(list(a)), torch.stack(list(b))], dim=1),
    "and back": lambda a, b: torch.cat([a, b], dim=1).chunk(2, dim=1)[1].contiguous()[3],
    "a list": lambda a, b: [part.squeeze(0) for part in torch.chunk(a, 4, dim=0)][2],
}


def reader(counted: list[int]) -> Callable[[str, Region], Tensor]:
    def read(name: str, region: Region) -> Tensor:
        counted.append(region.count)
        return picked(STORED[name], region)

    return read


def recorded_inputs() -> list[Recorded]:
    return [recorded(name, STORED[name].shape, STORED[name].dtype) for name in ("a", "b")]


@pytest.mark.parametrize("most_runs", [expressions.MOST_RUNS, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_regions_of_operations(name: str, most_runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "MOST_RUNS", most_runs)
    expected = OPERATIONS[name](STORED["a"], STORED["b"])
    result = OPERATIONS[name](*recorded_inputs())
    assert tuple(result.shape) == result.expression.shape == tuple(expected.shape)
    assert result.stride() == expected.stride()
    for region in [whole(tuple(expected.shape)), *regions(tuple(expected.shape))]:
        counted: list[int] = []
        assert torch.equal(result.expression.read(region, reader(counted)), picked(expected, region)), region
        if most_runs > 1:
            assert sum(counted) == region.count, f"{region} reads more than it holds"


def test_regions_of_random_compositions() -> None:
    draw = random.Random(0)
    steps: list[Callable[[Any], Any]] = [
        lambda t: t.transpose(0, -1).contiguous(),
        lambda t: torch.cat([t, t], 0),
        lambda t: torch.stack([t, t], -1),
        lambda t: t.reshape(-1, t.shape[-1]),
        lambda t: t.reshape(2, -1),
        lambda t: t[1:] if t.shape[0] > 1 else t,
        lambda t: t.chunk(2, -1)[-1],
        lambda t: t.flatten(),
    ]
    for _ in range(60):
        chosen = draw.choices(steps, k=draw.randint(2, 4))
        expected, (result, _) = STORED["a"], recorded_inputs()
        for step in chosen:
            expected, result = step(expected), step(result)
        for region in regions(tuple(expected.shape)):
            assert torch.equal(result.expression.read(region, reader([])), picked(expected, region))


def test_tensors_without_dims_and_without_elements() -> None:
    scalar = recorded("scalar", (), torch.float32)
    made = torch.stack([scalar, scalar])
    assert torch.equal(made.expression.read(whole((2,)), reader([])), torch.tensor([3.0, 3.0]))
    nothing = recorded("flat", (24,), torch.float32)[24:].reshape(0, 5)
    assert nothing.expression.read(whole((0, 5)), reader([])).shape == (0, 5)


def test_what_isnt_a_movement_is_refused() -> None:
    a, b = recorded_inputs()
    for operation in (
        lambda: a * 2,
        lambda: a + b,
        lambda: a[:, [0, 2]],
        lambda: a[::2],
        lambda: torch.cat([a, STORED["b"]]),
    ):
        with pytest.raises(NotFollowedError):
            operation()


@pytest.mark.parametrize("interval", [(0, 30), (0, 1), (3, 17), (5, 10), (7, 8), (4, 4)])
def test_boxes_cover_an_interval_in_order(interval: tuple[int, int]) -> None:
    block = torch.arange(30).reshape(2, 3, 5)
    boxes = list(boxes_of(interval, (2, 3, 5)))
    found = [int(value) for box in boxes for value in block[tuple(slice(*side) for side in box)].flatten()]
    assert found == list(range(*interval))


@pytest.mark.parametrize(
    "dims", [(((0, 2),), ((1, 2),)), (((0, 1), (3, 4)), ((0, 5),)), (((2, 4),), ((0, 1), (2, 5))), ((), ((0, 5),))]
)
def test_runs_are_the_flat_places(dims: Any) -> None:
    places = torch.arange(20).reshape(4, 5)
    expected = picked(places, Region(dims)).flatten().tolist()
    assert [index for run in runs_of(dims, (4, 5)) for index in range(*run)] == expected
