"""Instantiate models on the meta device: no weights, no hub."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, initialization

from planc.model.building.choosing import as_dtype, refused, require_legal
from planc.model.building.classes import model_classes
from planc.model.building.configs import first_line, model_dtype
from planc.model.choices import Choices
from planc.model.errors import ModelError

T = TypeVar("T")
# No released model has as many (those with a module for each expert have some 60,000).
_MOST_MODULES = 200_000


def instantiate(
    config: PreTrainedConfig, name: str, trust_remote_code: bool = False, choices: Choices | None = None
) -> nn.Module:
    """The model that `config` describes, of the first class that builds. Raises ModelError.

    `choices` go before what the config says; a class that builds without them alone is refused, not passed over.
    """
    choices = choices or Choices()
    require_legal(choices)
    reasons: dict[str, str] = {}
    for cls, part in model_classes(config, trust_remote_code):
        try:
            return _built(cls, part, choices)
        except ModelError:
            raise
        except Exception as error:  # constructors raise whatever a config makes them raise
            reasons.setdefault(cls.__name__, f"{type(error).__name__}: {first_line(error)}")
    if not reasons:
        raise ModelError(f"transformers has no model class for the config of `{name}` ({type(config).__name__})")
    raise ModelError(
        f"`{name}` does not build on the meta device",
        tuple(f"{cls_name}: {reason}" for cls_name, reason in reasons.items()),
    )


def _built(cls: type[PreTrainedModel], config: PreTrainedConfig, choices: Choices) -> nn.Module:
    dtype = model_dtype(config) if choices.dtype is None else as_dtype(choices.dtype)

    def build(**options: Any) -> nn.Module:
        model: nn.Module = on_meta(partial(cls._from_config, config, dtype=dtype, **options))
        return model

    if not choices.implementations:
        return build()
    before = copy.deepcopy(config)
    try:
        return build(**choices.implementations)
    except ModelError:
        raise
    except Exception as error:
        config = before
        build()
        raise refused(choices, error, cls.__name__) from error


def on_meta(factory: Callable[[], T]) -> T:
    """Call `factory` with the meta device as default. Raises ModelError where it makes too many modules."""
    count = 0

    def counted(module: nn.Module, name: str, submodule: Any) -> None:
        nonlocal count
        count += 1
        if count > _MOST_MODULES:
            raise ModelError(f"the model has more than {_MOST_MODULES:,} modules")

    handle = nn.modules.module.register_module_module_registration_hook(counted)
    try:
        with torch.device("meta"), initialization.meta_device_safe_creation_ops():
            return factory()
    finally:
        handle.remove()
