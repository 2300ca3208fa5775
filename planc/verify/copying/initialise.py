"""Give a copy weights under which every parameter matters."""

import math

import torch
from torch import nn

_SPREAD = 0.2
"""Noise on parameters that keep the values of the model's own initialisation: norms, decays, time steps."""
_GAIN = 1.2


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter of `model` in place.

    With the models' own initialisation (a standard deviation of 0.02) the experts of a small copy add some 1e-7 to its
    logits, and a wrong plan passes. Matrices that a model starts with zero-mean noise, or with a constant, get noise
    of unit gain instead; whatever starts with values of a meaning of its own keeps them, with noise on top.
    """
    for parameter in model.parameters():
        if not parameter.is_floating_point():
            continue
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
        if parameter.ndim >= 2 and _is_noise(parameter):
            parameter.copy_(noise * _standard_deviation(parameter))
        else:
            parameter.add_(noise * _SPREAD)
        torch.nan_to_num_(parameter)
    for module in model.modules():
        for buffer in module.buffers(recurse=False):
            _fill(module, buffer, generator)


def _fill(module: nn.Module, buffer: torch.Tensor, generator: torch.Generator) -> None:
    """Buffers that a checkpoint would fill: corrections of router scores, and tables from tokens to experts."""
    if buffer.numel() == 0 or bool(buffer.any()):
        return
    if buffer.is_floating_point():
        buffer.add_(_SPREAD * torch.randn(buffer.shape, generator=generator, dtype=torch.float64).to(buffer.dtype))
    elif buffer.dtype == torch.long and buffer.ndim == 2 and (experts := getattr(module, "num_experts", 0)):
        scores = torch.rand((buffer.shape[0], experts), generator=generator)
        buffer.copy_(scores.argsort(dim=-1)[:, : buffer.shape[1]])


def _is_noise(parameter: torch.Tensor) -> bool:
    """Whether the values are zero-mean noise or all the same, so that they mean nothing."""
    values = parameter.double()
    spread = values.std(unbiased=False)
    return bool(spread == 0 or not values.isfinite().all() or values.mean().abs() < 0.5 * spread)


def _standard_deviation(parameter: torch.Tensor) -> float:
    return _GAIN / math.sqrt(min(parameter.shape[-2:]) if parameter.ndim > 2 else parameter.shape[-1])
