"""The ways in which a model can run its experts."""

from collections.abc import Iterator

from torch import nn
from transformers import PreTrainedModel

# `transformers/integrations/moe.py` (5.24.0), without those that need a GPU.
IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm")


def implementations(model: nn.Module) -> Iterator[str | None]:
    """The values of `experts_implementation` that make a difference to `model`, the plainest first; None if none do."""
    if _dispatches(model):
        yield from IMPLEMENTATIONS
    else:
        yield None


def _dispatches(model: nn.Module) -> bool:
    """Whether any experts module was made by transformers' `use_experts_implementation`, which sets `has_gate`."""
    return isinstance(model, PreTrainedModel) and any(
        hasattr(module, "is_concatenated") and hasattr(module, "has_gate") for module in model.modules()
    )


def use_experts(model: nn.Module, implementation: str) -> None:
    """Run the experts of `model` by `implementation`."""
    assert isinstance(model, PreTrainedModel)
    model.set_experts_implementation(implementation)
