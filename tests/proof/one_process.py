"""What one process computes that sees all batches: the reference for every layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Gradients reach 12 on weights of 0.2: with larger steps the recurrence of Qwen3-Next makes 1e-2 of rounding errors.
LEARNING_RATE = 0.002


@dataclass(frozen=True)
class Reference:
    """Logits of each batch, gradients of their mean loss, logits after one step, parameters after two."""

    logits: list[Tensor]
    gradients: dict[str, Tensor]
    second_logits: list[Tensor]
    parameters: dict[str, Tensor]


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Plain SGD, parameter by parameter: DTensors of several meshes can't be batched."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, foreach=False)


def reference(model: Any, batches: Sequence[Tensor]) -> Reference:
    """Two steps on the mean of the losses of `batches`, as FSDP averages gradients. Changes `model`."""
    steps = optimizer(model)
    logits, gradients = step(model, batches)
    found = {name: gradient.clone() for name, gradient in gradients.items()}
    steps.step()
    second, _ = step(model, batches)
    steps.step()
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return Reference(logits, found, second, parameters)


def step(model: Any, batches: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Forward and backward on the mean of the batches' losses."""
    model.zero_grad()
    logits = []
    for ids in batches:
        output = model(input_ids=ids, labels=ids, use_cache=False)
        (output.loss / len(batches)).backward()
        logits.append(output.logits.detach())
    return logits, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
