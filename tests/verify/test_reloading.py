"""A sharded copy, saved and loaded again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.layouts.layout import Layout
from planc.runtime.mesh import Meshes
from planc.verify.applying import ByTransformers
from planc.verify.copying.copy import small_copy
from planc.verify.reference import reference
from planc.verify.reloading import save_and_reload
from planc.verify.trial import Laboratory, RankKind

LAYOUT = Layout(tp_size=2)
NAME = "model.layers.0.mlp.gate_proj.weight"
KINDS: list[Any] = ["threads", pytest.param("gloo", marks=pytest.mark.ranks)]


@dataclass(frozen=True)
class Spoilt:
    """A right plan, after which something is done to the sharded model."""

    spoil: Callable[[nn.Module], None] = lambda model: None
    layout: Layout = LAYOUT

    def apply(self, model: nn.Module, meshes: Meshes) -> nn.Module:
        name = NAME.removesuffix(".weight")
        applied = ByTransformers(LAYOUT, {name: "colwise", NAME: "colwise"}, {}, {}).apply(model, meshes)
        self.spoil(applied)
        return applied


def other_shard(model: nn.Module) -> None:
    parameter = model.get_parameter(NAME)
    assert isinstance(parameter, DTensor)
    if dist.get_rank() == 1:
        parameter._local_tensor[0, 0] += 1e-15


def adapters(model: nn.Module) -> None:
    model._hf_peft_config_loaded = True  # type: ignore[assignment]


@pytest.fixture(params=KINDS)
def laboratory(request: pytest.FixtureRequest) -> Iterator[Laboratory]:
    kind: RankKind = request.param
    copied = small_copy(CONFIG_MAPPING["llama"](), [2])
    made = Laboratory(copied.model, reference(copied.model, [copied.batch], 0), LAYOUT, kind)
    yield made
    made.close()


def test_comes_back(laboratory: Laboratory) -> None:
    saved = save_and_reload(laboratory, Spoilt())
    assert saved.finding is None
    assert saved.readers == ("transformers", "planc")


def test_the_last_bit_of_one_shard_is_seen(laboratory: Laboratory) -> None:
    with torch.no_grad():
        saved = save_and_reload(laboratory, Spoilt(other_shard))
    assert saved.finding is not None
    assert (saved.finding.code, saved.finding.targets) == ("PL707", (NAME,))


def test_what_cannot_be_saved_is_a_finding(laboratory: Laboratory) -> None:
    saved = save_and_reload(laboratory, Spoilt(adapters))
    assert saved.finding is not None
    assert saved.finding.code == "PL707"
    assert "can't be saved: CheckpointError: models with adapters" in saved.finding.message


def test_what_the_whole_copy_loses_is_no_fault_of_the_plan(laboratory: Laboratory) -> None:
    laboratory.model._keys_to_ignore_on_save = {"lm_head.weight"}  # type: ignore[assignment]
    saved = save_and_reload(laboratory, Spoilt())
    assert saved.finding is None
    assert saved.readers == ()
