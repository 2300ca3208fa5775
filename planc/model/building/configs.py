"""From the fields of a `config.json` to a transformers config and the model class it asks for."""

import copy
import difflib
import re
from collections.abc import Mapping
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model.building.plain import plain
from planc.model.errors import ModelError

# Fields that count layers: `num_hidden_layers`, `encoder_layers`, `n_layer`.
_COUNTS_LAYERS = re.compile(r"(^|_)(layers?|depths?)$")
# transformers makes a name for every label, and a model of any kind has the field.
_MOST_LABELS = 1_000_000
# Ten times what any released model has; a config that asks for more would build for minutes, or until memory is out.
_MOST_LAYERS = 2_000
# Fields that say nothing of the model's shape, and differ between files of one and the same model.
_NOISE = {"transformers_version", "_name_or_path", "architectures", "id2label", "label2id"}


def build_config(fields: Mapping[str, Any], overrides: Mapping[str, Any], *, name: str) -> PreTrainedConfig:
    """The config that transformers 5.24.0 reads from these fields (`AutoConfig.from_pretrained`).

    `overrides` go over the fields, section by section for nested configs. With no field but `model_type` it is that
    model type's default config. Raises ModelError.
    """
    fields = merge(fields, overrides)
    _refuse_giants(fields)
    model_type = fields.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(f"the config of `{name}` has no `model_type`")
    if model_type == "mistral" and "layer_types" in fields:
        model_type = "ministral"  # as AutoConfig.from_pretrained does
    if model_type not in CONFIG_MAPPING:
        near = difflib.get_close_matches(model_type, list(CONFIG_MAPPING.keys()))
        raise ModelError(
            f"transformers {transformers.__version__} does not know the model type `{model_type}`",
            (f"did you mean {' or '.join(f'`{n}`' for n in near)}?",) if near else (),
        )
    try:
        return CONFIG_MAPPING[model_type].from_dict(copy.deepcopy(dict(fields)))
    except Exception as error:  # a config class may raise anything on fields it didn't expect
        raise ModelError(f"transformers can't read the config of `{name}`: {first_line(error)}") from error


def merge(fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`overrides` over `fields`; where both hold a mapping, key by key."""
    merged = dict(fields)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _refuse_giants(fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            _refuse_giants(value)
        elif _COUNTS_LAYERS.search(str(key)) and _largest(value) > _MOST_LAYERS:
            raise ModelError(
                f"the config has `{key}: {_shown(value)}`; planc builds models of at most {_MOST_LAYERS:,} layers"
            )
        elif key == "num_labels" and _largest(value) > _MOST_LABELS:
            raise ModelError(f"the config has `num_labels: {_shown(value)}`; planc takes at most {_MOST_LABELS:,}")


def _largest(value: object) -> int:
    """The largest whole number in a field that has one, or a list of them for as many parts of the model."""
    numbers = value if isinstance(value, list | tuple) else (value,)
    return max((number for number in numbers if isinstance(number, int)), default=0)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, and the next where it only announces that; cut to a readable length."""
    first, *others = str(error).strip().splitlines() or [type(error).__name__]
    return (f"{first} {others[0].strip()}" if first.endswith(":") and others else first)[:300]


def model_dtype(config: PreTrainedConfig) -> Any:
    """The dtype that the config asks for: its own, else its text model's, else torch's default (None)."""
    return config.dtype if config.dtype is not None else text_config(config).dtype


def config_fields(config: object) -> dict[str, Any]:
    """The fields of a model's config: those of its text model at the top, where it has several models.

    Standard names that the config maps to its own (`attribute_map`) are there under both.
    """
    if not isinstance(config, PreTrainedConfig):
        return {}
    text = text_config(config)
    fields = _fields_of(text)
    if text is not config:
        for key, value in _fields_of(config).items():
            if getattr(config, key, None) is not text:
                fields.setdefault(key, value)
    return fields


def _fields_of(config: PreTrainedConfig) -> dict[str, Any]:
    fields = _without_noise(config.to_dict())
    for standard, own in type(config).attribute_map.items():
        if own in fields:
            fields.setdefault(standard, fields[own])
    return fields


def _without_noise(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(key): _without_noise(value) if isinstance(value, Mapping) else plain(value)
        for key, value in fields.items()
        if value is not None and key not in _NOISE
    }


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config of the text model inside a composite one, else `config` itself."""
    try:
        return config.get_text_config()
    except ValueError:  # several text models, none of which is the one
        return config


def remote_config(folder: str, overrides: Mapping[str, Any]) -> PreTrainedConfig:
    """The config class that the model's own repository defines. Executes its code: only after the user's consent."""
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=True, **overrides)
    except Exception as error:  # anything may come out of foreign code
        raise ModelError(f"the config code of `{folder}` raised {type(error).__name__}: {first_line(error)}") from error
