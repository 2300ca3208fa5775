"""From the fields of a `config.json` to a transformers config and the model class it asks for."""

import copy
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model.errors import ModelError

# Tried in this order where a config names no class of its own: a language model's head carries rules that its base
# model lacks.
_HEADS = (
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForMultimodalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForMaskedLM",
    "AutoModel",
)
# More layers than any model has; a config that asks for more would build until memory runs out.
_MOST_LAYERS = 10_000


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


def model_classes(config: PreTrainedConfig) -> Iterator[tuple[type[PreTrainedModel], PreTrainedConfig]]:
    """Classes that can hold this config, the best first, each with the config (or part of it) it is built from.

    First `architectures`, where transformers has such a class for this config, then the first fitting Auto class.
    """
    for name in config.architectures or ():
        cls = getattr(transformers, str(name), None) if str(name).isidentifier() else None
        if isinstance(cls, type) and issubclass(cls, PreTrainedModel) and (part := _part(config, cls)) is not None:
            yield cls, part
    for head in _HEADS:
        mapping = getattr(transformers, head)._model_mapping
        if type(config) in mapping:
            found = mapping[type(config)]
            for cls in found if isinstance(found, tuple) else (found,):
                if (part := _part(config, cls)) is not None:
                    yield cls, part


def _part(config: PreTrainedConfig, cls: type[PreTrainedModel]) -> PreTrainedConfig | None:
    """The config that `cls` takes: `config`, or its text config where the class is of the text model alone."""
    expected = getattr(cls, "config_class", None)
    if expected is None or isinstance(config, expected):
        return config
    text = config.get_text_config()
    return text if isinstance(text, expected) else None


def _refuse_giants(fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            _refuse_giants(value)
        elif isinstance(value, int) and "layers" in str(key) and value > _MOST_LAYERS:
            raise ModelError(f"the config has `{key}: {value}`; planc builds models of at most {_MOST_LAYERS:,} layers")


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, cut to a readable length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def remote_config(folder: str, overrides: Mapping[str, Any]) -> PreTrainedConfig:
    """The config class that the model's own repository defines. Executes its code: only after the user's consent."""
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=True, **overrides)
    except Exception as error:  # anything may come out of foreign code
        raise ModelError(f"the config code of `{folder}` raised {type(error).__name__}: {first_line(error)}") from error
