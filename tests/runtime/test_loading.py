"""Weights in one process: what transformers' own `from_pretrained` gives, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from planc.model.building.builder import build_model
from planc.runtime.errors import CheckpointError
from planc.runtime.loading import bytes_held, load_weights, materialise_rest
from planc.runtime.pretrained import in_loading_dtypes
from planc.runtime.sources import SafetensorsFolder
from tests.runtime.models import MODELS, batch, build

CPU = torch.device("cpu")


def saved(name: str, folder: Path, **changes: Any) -> Path:
    build(name, **changes).save_pretrained(folder)
    return folder


def loaded(folder: Path) -> Any:
    model = in_loading_dtypes(build_model(str(folder)))
    load_weights(model, SafetensorsFolder(folder), CPU)
    materialise_rest(model, CPU)
    return model.eval()


@pytest.mark.parametrize("name", ["llama", "llama-tied-biased", "qwen3", "phi3", "gemma2"])
def test_as_transformers_loads_it(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    theirs = getattr(transformers, MODELS[name][0]).from_pretrained(folder)
    ours = loaded(folder)
    expected, found = theirs.state_dict(), ours.state_dict()
    assert found.keys() == expected.keys()
    assert all(found[key].dtype == expected[key].dtype and torch.equal(found[key], expected[key]) for key in expected)
    buffers = dict(theirs.named_buffers())
    assert all(torch.equal(buffer, buffers[key]) for key, buffer in ours.named_buffers())
    assert torch.equal(ours(batch()).logits, theirs(batch()).logits)


def test_tied_parameters_stay_one(tmp_path: Path) -> None:
    model = loaded(saved("llama-tied-biased", tmp_path))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert bytes_held(model) < sum(t.numel() * t.element_size() for t in model.state_dict().values())


def test_converts_to_the_dtype_of_the_model(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    model = loaded(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.model.norm.weight, tensors["model.norm.weight"].bfloat16().float())


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace tensors of the checkpoint, or leave them out."""
    found = {**load_file(folder / "model.safetensors"), **tensors}
    save_file({name: t for name, t in found.items() if t is not None}, folder / "model.safetensors")


def test_missing_tensors_are_named_before_anything_is_read(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(folder, **{"model.norm.weight": None, "lm_head.weight": None})
    source = SafetensorsFolder(folder)
    with pytest.raises(CheckpointError, match=r"lacks 2 of .* tensors: `model.norm.weight`, `lm_head.weight`"):
        load_weights(build_model(str(folder)), source, CPU)
    assert source.bytes_read == 0


def test_missing_tensors_can_be_initialised(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(folder, **{"model.norm.weight": None})
    model = build_model(str(folder))
    report = load_weights(model, SafetensorsFolder(folder), CPU, initialise_missing=True)
    materialise_rest(model, CPU)
    assert report.missing == ("model.norm.weight",)
    assert torch.equal(model.model.norm.weight, torch.ones(32))
    assert torch.equal(model.lm_head.weight, load_file(folder / "model.safetensors")["lm_head.weight"])


def test_another_shape_names_both(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(folder, **{"model.norm.weight": torch.ones(31)})
    with pytest.raises(CheckpointError, match=r"`model.norm.weight` has shape \[31\], the model \[32\]"):
        load_weights(build_model(str(folder)), SafetensorsFolder(folder), CPU)


def test_surplus_tensors_are_told(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(folder, extra=torch.ones(3))
    model = build_model(str(folder))
    seen: list[tuple[int, int]] = []
    report = load_weights(model, SafetensorsFolder(folder), CPU, progress=lambda *step: seen.append(step))
    assert report.unexpected == ("extra",)
    assert seen[-1] == (report.tensors, report.tensors)
    assert report.bytes_read == sum(p.numel() * 4 for p in model.parameters())


def test_a_model_that_cant_fill_its_buffers() -> None:
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("frequencies", torch.ones(3), persistent=False)

    with torch.device("meta"):
        model = Plain()
    with pytest.raises(CheckpointError, match="no checkpoint holds `frequencies`"):
        materialise_rest(copy.deepcopy(model), CPU)
