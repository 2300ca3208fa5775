"""What the recorder writes down of a forward, on small modules of its own."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import planc
from planc.model.building.tracing_run import UnwatchedError, watch
from planc.model.dataflow import Flow, Operation


class Layer(nn.Module):
    """A layer that adapts to shards in one view, and not in another."""

    def __init__(self, number: int, wide: bool) -> None:
        super().__init__()
        self.number = number
        self.proj = nn.Linear(8, 16 if wide else 8)
        self.back = nn.Linear(16 if wide else 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        heads = y.view(*x.shape[:-1], -1, 4)
        y = heads.reshape(x.shape[0], x.shape[1], heads.shape[2] * 4)
        return x + self.back(y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.layers = nn.ModuleList(Layer(number, wide=number == 1) for number in range(6))
        self.head = nn.Linear(8, 32, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    with torch.device("meta"):
        return Model()


@pytest.fixture(scope="module")
def flow(model: nn.Module) -> Flow:
    return watch(model)


def named(flow: Flow, name: str, module: str) -> list[Operation]:
    return [op for op in flow.operations if op.name == name and flow.modules[op.module] == module]


def test_one_layer_of_each_kind_is_recorded(flow: Flow) -> None:
    assert {kind.module: kind.alike for kind in flow.kinds} == {
        "layers.0": ("layers.0", "layers.2", "layers.3", "layers.4", "layers.5"),
        "layers.1": ("layers.1",),
    }
    assert named(flow, "linear", "layers.0.proj") and named(flow, "linear", "layers.1.proj")
    assert not named(flow, "linear", "layers.2.proj")


def test_numbers_off_a_shape_are_expressions_and_others_are_plain(flow: Flow) -> None:
    (view,) = named(flow, "view", "layers.0")
    assert [argument if isinstance(argument, int) else argument[0] for argument in view.arguments[1:]] == [
        "n",
        "n",
        -1,
        4,
    ]
    (reshape,) = named(flow, "reshape", "layers.0")
    operator, left, right = reshape.arguments[3][1]
    assert (operator, left[0], left[2], right) == ("*", "dim", 2, 4)


def test_values_are_traced_to_their_parameters(flow: Flow) -> None:
    (linear,) = named(flow, "linear", "layers.1.proj")
    assert [flow.sources[value] for value in linear.inputs[1:]] == [
        "parameter:layers.1.proj.weight",
        "parameter:layers.1.proj.bias",
    ]
    assert flow.parameter_shapes["layers.1.proj.weight"] == (16, 8)


def test_the_model_is_left_as_it_was(model: nn.Module, flow: Flow) -> None:
    assert len(model.layers) == 6  # type: ignore[arg-type]
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_a_flow_survives_its_file(flow: Flow) -> None:
    text = json.dumps(flow.to_json())
    assert Flow.from_json(json.loads(text)) == flow
    assert len(text) < 20_000


def test_writing_into_a_slice_writes_into_the_whole() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 8)

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.embed(input_ids)
            whole = x.new_empty(*x.shape[:-1], 16)
            whole[..., :8].copy_(x)
            whole[..., 8:] = x
            return whole

    with torch.device("meta"):
        flow = watch(Writes())
    written = [op for op in flow.operations if op.name == "setitem"]
    assert len(written) == 2
    assert written[1].inputs[0] == written[0].outputs[0]


def test_a_model_that_asks_for_data_gets_plausible_answers() -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 8)

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.embed(input_ids)
            if (input_ids == 0).all():
                x = x[input_ids == 0]
            return x * x.mean().item()

    with torch.device("meta"):
        assert watch(Asks()).operations


def test_a_model_that_takes_no_ids_is_not_watched() -> None:
    with torch.device("meta"), pytest.raises(UnwatchedError, match="RuntimeError: Input type"):
        watch(nn.Conv2d(3, 3, 3))


def test_check_tells_what_a_model_that_is_not_watched_raised() -> None:
    """Llama 4's composite of transformers 5.24.0 doesn't run at all."""
    (found,) = [d for d in planc.check("llama4", tp_size=2).diagnostics if d.code == "PL420"]
    assert found.notes == (
        "called with token ids alone it raises AttributeError: 'MoeCausalLMOutputWithPast' object has no attribute "
        "'image_outputs'",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("values", [99]),
        ("outputs", [10**9]),
        ("shapes", [["a"]]),
        ("modules", [1]),
        ("operations", [["linear", 700, [0], []]]),
        ("operations", [["linear", 0, ["x"], []]]),
        ("operations", [["enter", 0, [0], []]]),
        ("operations", "linear"),
        ("kinds", [["layers.0"]]),
        ("sources", {"x": "constant"}),
    ],
)
def test_what_is_no_flow_is_refused(flow: Flow, field: str, value: Any) -> None:
    with pytest.raises((KeyError, IndexError, TypeError, ValueError)):
        Flow.from_json({**flow.to_json(), field: value})
