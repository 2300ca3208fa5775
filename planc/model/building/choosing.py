"""Choices of a model's dtype and implementations: which are legal, and putting them on a model."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS
from transformers.integrations.hub_kernels import is_kernel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from planc.model.building.configs import first_line
from planc.model.building.precision import kept_in_float32
from planc.model.choices import Choices, illegal
from planc.model.errors import ModelError


def require_legal(choices: Choices) -> None:
    """Raise ModelError, with what is legal, for an implementation that transformers 5.24.0 doesn't know.

    Source: `get_correct_attn_implementation` and `get_correct_experts_implementation` in
    `transformers/modeling_utils.py`.
    """
    for argument, chosen in choices.implementations.items():
        for name in _names(argument, chosen):
            legal = legal_implementations(argument)
            if name not in legal and not (argument == "attn_implementation" and is_kernel(name)):
                raise illegal(argument, name, legal)


def as_dtype(name: str) -> torch.dtype:
    """The dtype of that name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def legal_implementations(argument: str) -> tuple[str, ...]:
    """The names that `argument` may have, of whoever registered them with transformers."""
    if argument == "attn_implementation":
        return tuple(sorted({"eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()}))
    return tuple(sorted({"eager", *ALL_EXPERTS_FUNCTIONS.keys(), *ALL_FP8_EXPERTS_FUNCTIONS.keys()}))


def _names(argument: str, chosen: Any) -> Iterator[str]:
    """Every name in `chosen`, which may be a mapping of sub-configs."""
    if isinstance(chosen, Mapping):
        for value in chosen.values():
            yield from _names(argument, value)
    elif isinstance(chosen, str):
        yield chosen
    elif chosen is not None:
        raise illegal(argument, chosen, legal_implementations(argument))


def refused(choices: Choices, error: Exception, class_name: str) -> ModelError:
    """The message for implementations that a model, or this machine, doesn't have."""
    chosen = " and ".join(f"{name}={value!r}" for name, value in choices.implementations.items())
    return ModelError(f"{class_name} can't be loaded with {chosen}: {first_line(error)}")


def put_on(model: nn.Module, choices: Choices) -> None:
    """Change a model that is built already, with or without its weights.

    Parameters and persistent buffers get the dtype, but for those that transformers keeps in float32, as its
    `from_pretrained` has it; what the model computed for itself stays. Raises ModelError where the model has no such
    implementation.
    """
    require_legal(choices)
    if choices.implementations:
        _set_implementations(model, choices)
    if choices.dtype is not None:
        _cast(model, as_dtype(choices.dtype))


def _set_implementations(model: nn.Module, choices: Choices) -> None:
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise ModelError(f"{name} is no model of transformers: it has no {' and no '.join(choices.implementations)}")
    try:
        if choices.attn_implementation is not None:
            if not model._can_set_attn_implementation():  # of which transformers only warns
                raise ModelError(f"{name} has one implementation of attention, which can't be chosen")
            model.set_attn_implementation(choices.attn_implementation)
        if choices.experts_implementation is not None:
            model.set_experts_implementation(choices.experts_implementation)
    except (ValueError, ImportError, RuntimeError) as error:
        raise refused(choices, error, name) from error


def _cast(model: nn.Module, dtype: torch.dtype) -> None:
    in_float32 = kept_in_float32(model, dtype)

    def converted(name: str, tensor: torch.Tensor) -> torch.Tensor:
        # Codes of a quantisation mean something else in another dtype.
        is_plain = tensor.is_floating_point() and tensor.itemsize > 1
        return tensor.to(torch.float32 if in_float32(name) else dtype) if is_plain else tensor

    for name, parameter in model.named_parameters():
        # Within the parameter, so that ties and optimizers keep theirs.
        parameter.data = converted(name, parameter.data)
    for prefix, module in model.named_modules():
        for own, buffer in module._buffers.items():
            if buffer is not None and own not in module._non_persistent_buffers_set:
                module._buffers[own] = converted(f"{prefix}.{own}" if prefix else own, buffer)
    for config in _configs(model):
        config.dtype = dtype


def _configs(model: nn.Module) -> Iterator[Any]:
    """The configs that transformers notes the dtype in (`_get_dtype`)."""
    if isinstance(model, PreTrainedModel):
        yield model.config
        parts = (getattr(model.config, key, None) for key in model.config.sub_configs)
        yield from (part for part in parts if part is not None)
