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


def _is_noise(parameter: torch.Tensor) -> bool:
    """Whether the values are zero-mean noise or all the same, so that they mean nothing."""
    values = parameter.double()
    spread = values.std(unbiased=False)
    return bool(spread == 0 or not values.isfinite().all() or values.mean().abs() < 0.5 * spread)


def _standard_deviation(parameter: torch.Tensor) -> float:
    return _GAIN / math.sqrt(min(parameter.shape[-2:]) if parameter.ndim > 2 else parameter.shape[-1])
