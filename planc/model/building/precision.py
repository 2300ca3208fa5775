"""Which parameters stay in float32, whatever dtype the rest of the model has."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import build_glob_alternation


def kept_in_float32(model: nn.Module, dtype: torch.dtype | None = None) -> Callable[[str], bool]:
    """A test of parameter names, by the model's dtype plan for `dtype`, by default its own.

    The same search as loading does (`core_model_loading.py`) and as FSDP groups are made of
    (`distributed/mixin.py`, `_resolve_parallel_plans`, transformers 5.24.0).
    """
    plan = model._get_dtype_plan(dtype or model.dtype) if isinstance(model, PreTrainedModel) else {}
    if not plan:
        return lambda name: False
    pattern, _, _ = build_glob_alternation(sorted(plan))
    return lambda name: pattern.search(name) is not None
