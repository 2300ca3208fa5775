"""Instantiate models on the meta device: no weights, no hub."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedConfig, initialization

from planc.model.building.classes import model_classes
from planc.model.building.configs import first_line, model_dtype
from planc.model.errors import ModelError

T = TypeVar("T")
# No released model has as many (those with a module for each expert have some 60,000).
_MOST_MODULES = 200_000


def instantiate(config: PreTrainedConfig, name: str, trust_remote_code: bool = False) -> nn.Module:
    """The model that `config` describes, of the first class that builds. Raises ModelError."""
    reasons: dict[str, str] = {}
    for cls, part in model_classes(config, trust_remote_code):
        try:
            model: nn.Module = on_meta(partial(cls._from_config, part, dtype=model_dtype(part)))
            return model
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
