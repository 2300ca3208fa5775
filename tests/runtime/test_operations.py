"""Each operation on toy modules of sizes that don't divide: outputs and gradients as without it, on three ranks."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from planc.ir.operations import (
    DivideInput,
    LookupShard,
    Operation,
    RunDistributed,
    RunLocal,
    ShardParameter,
    SumGradient,
    SumOutputGradient,
    TransformInput,
    TransformOutput,
)
from planc.layouts.layout import Layout
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.runtime.errors import ApplicationError
from tests.runtime.ranks import run_ranks

RANKS = 3
R, P, LAST = Replicate(), Partial(), Shard(-1)


class Toy(nn.Module):
    """One module, called by position or by keyword; its output is squared so that gradients differ by element."""

    def __init__(self, inner: nn.Module, keyword: str | None = None) -> None:
        super().__init__()
        self.inner, self.keyword = inner, keyword

    def forward(self, values: Tensor) -> Tensor:
        output = self.inner(values) if self.keyword is None else self.inner(**{self.keyword: values})
        return output * output


class Changing(Toy):
    """Changes what its module hands on in place, as a whole and in part."""

    def forward(self, values: Tensor) -> Tensor:
        # Identity hands on what it gets.
        values = values.clone()
        output = self.inner(values) if self.keyword is None else self.inner(**{self.keyword: values})
        output += 1
        output[..., 1:] *= 3
        return output * output


class Doubled(nn.Linear):
    """A Linear whose forward has more arguments than one, and which is called by keyword."""

    def forward(self, hidden_states: Tensor, scale: float = 2.0) -> Tensor:
        return super().forward(hidden_states) * scale


class GateUp(nn.Module):
    """`[gate | up]` in one weight, and the projection back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(4, 2 * width, bias=False), nn.Linear(width, 4, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        gate, up = self.gate_up(values).chunk(2, dim=-1)
        result: Tensor = self.down(torch.sigmoid(gate) * up)
        return result


@dataclass(frozen=True)
class Case:
    """A module and the operations that must leave what it computes unchanged."""

    build: Callable[[], nn.Module]
    operations: tuple[Operation, ...]
    values: Callable[[], Tensor] = field(default=lambda: torch.randn(2, 5, 4))
    keyword: str | None = None


def colwise(inputs: int, outputs: int, **more: Any) -> Case:
    return Case(
        lambda: nn.Linear(inputs, outputs),
        (
            ShardParameter("inner.weight", "tp", Shard(0)),
            ShardParameter("inner.bias", "tp", Shard(0)),
            TransformInput("inner", "tp", 0, R, R, P),
            RunLocal("inner"),
            TransformOutput("inner", "tp", LAST, R, R, **more),
        ),
        lambda: torch.randn(2, 5, inputs),
    )


def rowwise(inputs: int) -> Case:
    return Case(
        lambda: nn.Linear(inputs, 4),
        (
            ShardParameter("inner.weight", "tp", Shard(1)),
            ShardParameter("inner.bias", "tp", R),
            TransformInput("inner", "tp", 0, R, LAST, LAST),
            RunLocal("inner", ("inner.bias",)),
            TransformOutput("inner", "tp", P, R, R),
        ),
        lambda: torch.randn(2, 5, inputs),
    )


def ids(rows: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, rows, (3, 5))


def lookup(rows: int, padding: int | None = None) -> Case:
    return Case(
        lambda: nn.Embedding(rows, 4, padding_idx=padding),
        (
            ShardParameter("inner.weight", "tp", Shard(0)),
            RunLocal("inner"),
            LookupShard("inner", "tp", rows),
            TransformOutput("inner", "tp", P, R, R),
        ),
        ids(rows),
    )


def packed(width: int) -> Case:
    return Case(
        lambda: GateUp(width),
        (
            ShardParameter("inner.gate_up.weight", "tp", StridedShard(0, 2)),
            ShardParameter("inner.down.weight", "tp", Shard(1)),
            TransformInput("inner.gate_up", "tp", 0, R, R, P),
            RunLocal("inner.gate_up"),
            RunLocal("inner.down"),
            TransformOutput("inner.down", "tp", P, R, R),
        ),
    )


CASES: dict[str, Case] = {
    "colwise": colwise(4, 6, size=6),
    "colwise-uneven": colwise(4, 7, size=7),
    "colwise-with-empty-shards": colwise(4, 2, size=2),
    "colwise-without-size": colwise(4, 7),
    "rowwise": rowwise(6),
    "rowwise-uneven": rowwise(7),
    "rowwise-with-empty-shards": rowwise(2),
    "lookup": lookup(6),
    "lookup-uneven": lookup(7),
    "lookup-with-empty-shards": lookup(2),
    "lookup-padding-on-the-first-rank": lookup(7, 1),
    "lookup-padding-on-the-last-rank": lookup(7, 6),
    "packed": packed(6),
    "packed-uneven": packed(7),
    "by-keyword": Case(
        lambda: Doubled(4, 6),
        (
            ShardParameter("inner.weight", "tp", Shard(0)),
            ShardParameter("inner.bias", "tp", Shard(0)),
            TransformInput("inner", "tp", 0, R, R, P),
            RunLocal("inner"),
            TransformOutput("inner", "tp", LAST, R, R, 6),
        ),
        keyword="hidden_states",
    ),
    "embedding-by-features": Case(
        lambda: nn.Embedding(6, 7),
        (
            ShardParameter("inner.weight", "tp", Shard(1)),
            RunLocal("inner"),
            TransformOutput("inner", "tp", LAST, R, R, 7),
        ),
        ids(6),
    ),
    "sequence-and-back": Case(
        lambda: nn.Linear(4, 4),
        (
            TransformInput("inner", "tp", 0, R, Shard(1), Shard(1)),
            TransformOutput("inner", "tp", Shard(1), R, R, 5),
            SumGradient("inner.weight", "tp"),
            SumGradient("inner.bias", "tp"),
        ),
    ),
    "under-dtensor": Case(
        lambda: nn.Linear(4, 6),
        (
            ShardParameter("inner.weight", "tp", Shard(0)),
            ShardParameter("inner.bias", "tp", Shard(0)),
            RunDistributed("inner", "tp", R, R),
        ),
    ),
    "divided-and-summed": Case(
        lambda: nn.Identity(), (DivideInput("inner", "tp"), TransformOutput("inner", "tp", P, R, P))
    ),
}


def step(model: nn.Module, values: Tensor, times: int = 1) -> dict[str, Tensor]:
    """Outputs and gradients after `times` backward passes that accumulate; inputs with gradients where they can."""
    values = values.clone().requires_grad_(values.is_floating_point())
    for _ in range(times):
        output = model(values)
        output.square().sum().backward()
    found = {"output": output.detach()}
    if values.grad is not None:
        found["input"] = values.grad
    for name, parameter in model.named_parameters():
        gradient: Any = parameter.grad
        whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        # A rank that holds nothing has no gradient of its own to gather.
        found[name] = torch.zeros(parameter.shape) if whole is None else whole
    with torch.no_grad():
        found["inference"] = model(values)
    return found


def compare(names: list[str], times: int, kind: type[Toy] = Toy) -> dict[str, list[str]]:
    """For each case, what differs from the same module without operations."""
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    meshes, differing = build_meshes(Layout(tp_size=RANKS)), {}
    for name in names:
        case = CASES[name]
        torch.manual_seed(0)
        model, values = kind(case.build(), case.keyword), case.values()
        expected = step(copy.deepcopy(model), values, times)
        found = step(apply_operations(model, case.operations, meshes), values, times)
        differing[name] = [k for k in expected if not torch.allclose(found[k], expected[k], rtol=1e-4, atol=1e-5)]
    return differing


@pytest.mark.ranks
@pytest.mark.parametrize("times", [1, 2])
def test_as_without_operations(times: int) -> None:
    for differing in run_ranks(RANKS, compare, list(CASES), times):
        assert differing == {name: [] for name in CASES}


@pytest.mark.ranks
def test_outputs_may_be_changed_in_place() -> None:
    for differing in run_ranks(RANKS, compare, list(CASES), 1, Changing):
        assert differing == {name: [] for name in CASES}


def changed_in_place() -> tuple[list[float], str]:
    """The input's gradient where a marked output is doubled; what is said to a module that changes its input."""
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    meshes, rank = build_meshes(Layout(tp_size=RANKS)), torch.distributed.get_rank()
    model = apply_operations(nn.Sequential(nn.Identity()), [SumOutputGradient("0", "tp", 2)], meshes)
    values = torch.ones(5, requires_grad=True)
    output = model(values.clone())
    output *= 2
    (output * (rank + 1)).sum().backward()
    assert values.grad is not None
    model = apply_operations(nn.Sequential(nn.ReLU(inplace=True)), [TransformInput("0", "tp", 0, R, R, P)], meshes)
    with pytest.raises(RuntimeError) as error:
        model(values.clone())
    return values.grad.tolist(), str(error.value)


@pytest.mark.ranks
def test_a_marked_output_may_be_changed_and_a_shared_input_may_not() -> None:
    """The caller may read its tensor again, with a gradient that knows nothing of the change."""
    for rank, (gradient, told) in enumerate(run_ranks(RANKS, changed_in_place)):
        assert gradient == [*[2.0 * (rank + 1)] * 3, 12.0, 12.0]
        assert "is a view and is being modified inplace" in told


def gradient_of_last_features() -> tuple[Tensor, Tensor]:
    """The input's gradient through an identity whose last two features' gradient is summed, and the rank."""
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    meshes, rank = build_meshes(Layout(tp_size=RANKS)), torch.distributed.get_rank()
    model = apply_operations(nn.Sequential(nn.Identity()), [SumOutputGradient("0", "tp", 2)], meshes)
    values = torch.ones(5, requires_grad=True)
    (model(values) * (rank + 1)).sum().backward()
    assert values.grad is not None
    return values.grad, torch.tensor(float(rank))


@pytest.mark.ranks
def test_gradient_of_the_last_features_is_summed() -> None:
    for gradient, rank in run_ranks(RANKS, gradient_of_last_features):
        assert gradient.tolist() == [*[rank + 1] * 3, 6.0, 6.0]


# Their sum in bfloat16 is 6.9375 in any order; 6.96875 is nearest to it.
PARTS = (2.234375, 0.62890625, 4.09375)


class Scaled(nn.Module):
    """Scales by a parameter, whose gradient is then what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))

    def forward(self, values: Tensor) -> Tensor:
        return self.weight * values


def gradient_in_bfloat16() -> list[float]:
    """The gradient of a bfloat16 parameter after two passes, in which the ranks' parts are those of `PARTS`."""
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    meshes, rank = build_meshes(Layout(tp_size=RANKS)), torch.distributed.get_rank()
    model = apply_operations(nn.Sequential(Scaled()), [SumGradient("0.weight", "tp")], meshes)
    for _ in range(2):
        model(torch.full((2,), PARTS[rank], dtype=torch.bfloat16)).sum().backward()
    gradient = model[0].weight.grad
    assert gradient is not None and gradient.dtype is torch.bfloat16
    return gradient.tolist()


@pytest.mark.ranks
def test_gradients_in_bfloat16_are_summed_in_float32() -> None:
    """Rounded once, and each pass adds its own sum."""
    once = torch.tensor(PARTS).sum().bfloat16()
    assert run_ranks(RANKS, gradient_in_bfloat16) == [[2 * float(once)] * 2] * RANKS


def accumulated_by_transformers() -> list[float]:
    """The gradient after one, two and three passes that each add 1 on each of two ranks."""
    from transformers.distributed.tensor_parallel import ReplicatedWithGradAllReduce

    from planc.runtime.mesh import build_meshes

    mesh = build_meshes(Layout(tp_size=2)).of("tp")
    model, found = Scaled(), []
    ReplicatedWithGradAllReduce().install_forward(model, mesh)
    for _ in range(3):
        model(torch.ones(2, dtype=torch.bfloat16)).sum().backward()
        assert model.weight.grad is not None
        found.append(float(model.weight.grad[0]))
    return found


@pytest.mark.ranks
def test_what_is_said_of_transformers_is_so() -> None:
    """PL606: the sum of the passes before is summed again; right would be 2, 4 and 6."""
    assert run_ranks(2, accumulated_by_transformers) == [[2.0, 6.0, 14.0]] * 2


def refused() -> list[str]:
    """What the interpreter says of programs that don't fit the model, which stays as it was."""
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    meshes, told = build_meshes(Layout(tp_size=RANKS)), []
    faulty: list[list[Operation]] = [
        [ShardParameter("inner.weight", "tp", Shard(0)), RunLocal("other")],
        [ShardParameter("inner.weight", "tp", Shard(0)), ShardParameter("inner.scale", "tp", R)],
        [TransformInput("inner", "tp", 0, R, P, P)],
    ]
    for operations in faulty:
        model = Toy(nn.Linear(4, 6))
        weight = model.inner.weight
        with pytest.raises(ApplicationError) as error:
            apply_operations(model, operations, meshes)
        assert model.inner.weight is weight
        told.append(str(error.value))
    return told


@pytest.mark.ranks
def test_programs_that_do_not_fit_change_nothing() -> None:
    (told, *_) = run_ranks(RANKS, refused)
    assert told == [
        "the program names the module `other`, which this model doesn't have",
        "the program names the parameter `inner.scale`, which this model doesn't have",
        "transform_input of `inner`: no local tensor can go from R to P",
    ]
