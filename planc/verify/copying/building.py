"""Build a model from a config's fields, on the meta device for its shape or on the CPU to run."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from planc.model.building.classes import model_classes
from planc.model.building.instantiate import on_meta
from planc.verify.copying.errors import CopyError


def classes(config: PreTrainedConfig) -> Iterator[type[PreTrainedModel]]:
    """Model classes that can hold `config` or its text config, the best first."""
    found = [cls for cls, _ in model_classes(config)]
    yield from found or _of_other_families(config)


def _of_other_families(config: PreTrainedConfig) -> Iterator[type[PreTrainedModel]]:
    """What the Auto classes build from this config where the model class declares another family's config."""
    for auto in (AutoModelForCausalLM, AutoModelForMaskedLM, AutoModel):
        with contextlib.suppress(KeyError, ValueError):  # none, or one that isn't there
            cls = auto._model_mapping[type(config)]
            yield cls[0] if isinstance(cls, tuple) else cls


def config_from(template: PreTrainedConfig, fields: Mapping[str, Any]) -> PreTrainedConfig:
    """A config of the class of `template` with these fields. Raises CopyError."""
    try:
        config = type(template).from_dict(dict(fields))
    except Exception as error:  # config classes validate their fields in many ways
        raise CopyError(f"the config refuses the small numbers: {first_line(error)}") from error
    assert isinstance(config, PreTrainedConfig)
    return config


def build(cls: type[PreTrainedModel], config: PreTrainedConfig, *, meta: bool) -> nn.Module:
    """An instance of `cls` with eager attention and eager experts. Raises CopyError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return on_meta(partial(_instance, cls, config)) if meta else _instance(cls, config)
    except Exception as error:  # constructors raise whatever a config makes them raise
        raise CopyError(f"{cls.__name__} does not build: {first_line(error)}") from error


def _instance(cls: type[PreTrainedModel], config: PreTrainedConfig) -> nn.Module:
    model: nn.Module = cls._from_config(config, attn_implementation="eager", experts_implementation="eager")
    return model


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
