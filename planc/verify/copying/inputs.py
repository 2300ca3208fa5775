"""Batches that a copy can be fed with."""

import inspect
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from planc.verify.copying.fields import fields
from planc.verify.copying.roles import Role, role

Batch = Mapping[str, Tensor]
ROWS = 2
POSITIONS = 12
_GRID = (1, 4, 4)
"""Frames, rows and columns of patches of one picture."""


def batches(model: nn.Module, generator: torch.Generator) -> Iterator[Batch]:
    """Batches to try on `model`, the most natural first: token ids, embeddings, pixels, patches."""
    names = frozenset(inspect.signature(model.forward).parameters)
    config = model.config
    assert isinstance(config, PreTrainedConfig)
    if {"input_ids", "decoder_input_ids"} <= names:
        yield {name: _tokens(config, generator) for name in ("input_ids", "decoder_input_ids")}
    if "input_ids" in names:
        yield {"input_ids": _tokens(config, generator)}
    hidden = getattr(config.get_text_config(), "hidden_size", None)
    embeddings = [name for name in sorted(names) if name.endswith(("_embeds", "hidden_states"))]
    if embeddings and isinstance(hidden, int) and "grid_thw" not in names:
        yield {name: _noise((ROWS, POSITIONS, hidden), generator) for name in embeddings}
    yield from _pictures(model, config, names, generator)


def _pictures(
    model: nn.Module, config: PreTrainedConfig, names: frozenset[str], generator: torch.Generator
) -> Iterator[Batch]:
    """Pictures as pixels, or as rows of patches with the grid, or the places, that they come from."""
    patches = _GRID[0] * _GRID[1] * _GRID[2]
    features = _features_of_first_projection(model)
    if "grid_thw" in names:
        name = "pixel_values" if "pixel_values" in names else "hidden_states"
        yield {name: _noise((patches, features), generator), "grid_thw": torch.tensor([_GRID])}
    elif "pixel_position_ids" in names:
        rows, columns = torch.meshgrid(torch.arange(_GRID[1]), torch.arange(_GRID[2]), indexing="ij")
        places = torch.stack([columns.flatten(), rows.flatten()], dim=-1).expand(ROWS, -1, -1).clone()
        yield {"pixel_values": _noise((ROWS, patches, features), generator), "pixel_position_ids": places}
    elif "pixel_values" in names and isinstance(size := getattr(config, "image_size", None), int):
        yield {"pixel_values": _noise((ROWS, getattr(config, "num_channels", 3), size, size), generator)}


def _features_of_first_projection(model: nn.Module) -> int:
    """How many numbers of a patch the model's first linear layer or convolution takes."""
    layers = (m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Conv3d))
    return next((layer.weight[0].numel() for layer in layers), 1)


def _tokens(config: PreTrainedConfig, generator: torch.Generator) -> Tensor:
    """Random ids `[ROWS, POSITIONS]`, without special tokens: a placeholder of an image would ask for one."""
    found = list(fields(config.to_dict()))
    vocabulary = min((f.value for f in found if role(f.name) is Role.VOCABULARY and f.value > 1), default=2)
    special = {f.value for f in found if role(f.name) is Role.TOKEN}
    legal = torch.tensor([token for token in range(vocabulary) if token not in special] or [0])
    return legal[torch.randint(len(legal), (ROWS, POSITIONS), generator=generator)]


def _noise(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def another(batch: Batch, generator: torch.Generator) -> Batch:
    """A batch of the same shapes with other contents; grids and places stay."""
    return {name: _refilled(name, tensor, generator) for name, tensor in batch.items()}


def _refilled(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.is_floating_point():
        return _noise(tuple(tensor.shape), generator)
    if name.endswith("input_ids"):
        flat = tensor.flatten()
        return flat[torch.randint(len(flat), tensor.shape, generator=generator)]
    return tensor
