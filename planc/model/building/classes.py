"""Which model class a config asks for."""

import importlib
from collections.abc import Iterator

import transformers
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from planc.model.building.configs import text_config
from planc.model.errors import ModelError

# Tried in this order where a config names no class of its own: a language model's head carries rules that its base
# model lacks.
_HEADS = (
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForMultimodalLM",
    "AutoModelForMaskedLM",
    "AutoModel",
)
_ENCODER_DECODER_HEADS = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
Candidate = tuple[type[PreTrainedModel], PreTrainedConfig]


def model_classes(config: PreTrainedConfig, trust_remote_code: bool = False) -> Iterator[Candidate]:
    """Classes that can hold this config, the best first, each with the config (or part of it) it is built from.

    First the model's own code, where it is trusted; `architectures`, where transformers has such a class for this
    config; what the Auto classes say (whole models before their text models alone); then any class that the config's
    modeling module defines for it: parts of composite models have no Auto class.
    """
    if trust_remote_code:
        yield from _remote_classes(config)
    for name in _architectures(config):
        cls = getattr(transformers, str(name), None) if str(name).isidentifier() else None
        if isinstance(cls, type) and issubclass(cls, PreTrainedModel):
            yield from _with_config(cls, config)
    candidates = [_as_auto_classes_build(cls, config) for cls in _auto_classes(config)]
    yield from sorted(candidates, key=lambda candidate: candidate[1] is not config)
    yield from _module_classes(config)


def _architectures(config: PreTrainedConfig) -> list[object]:
    """Raises ModelError for what is no list of names."""
    names: object = config.architectures
    if names is not None and not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise ModelError("the config's `architectures` is no list of class names")
    return [name for name in names or () if name != "PreTrainedModel"]  # the class of all classes, which builds none


def _auto_classes(config: PreTrainedConfig) -> Iterator[type[PreTrainedModel]]:
    for head in _ENCODER_DECODER_HEADS + _HEADS if config.is_encoder_decoder else _HEADS:
        try:
            found = getattr(transformers, head)._model_mapping[type(config)]
        except (KeyError, ValueError):  # none, or one whose module lacks the class that the mapping names
            continue
        yield from found if isinstance(found, tuple) else (found,)


def _with_config(cls: type[PreTrainedModel], config: PreTrainedConfig) -> Iterator[Candidate]:
    """`cls` with `config`, or with its text config where the class is of that alone; nothing if neither fits."""
    try:
        expected = getattr(cls, "config_class", None)
    except ImportError:  # a stand-in for a class whose library isn't installed; building it says which
        return
    for part in (config, text_config(config)):
        if expected is None or isinstance(part, expected):
            yield cls, part
            return


def _as_auto_classes_build(cls: type[PreTrainedModel], config: PreTrainedConfig) -> Candidate:
    """`cls` with the config that an Auto class gives it: the text config where `cls` is of that alone, else all.

    The mappings also name classes of other model types, which take the config as if it were their own (`exaone` is
    built as Llama). Source: `_BaseAutoModelClass.from_config` in `transformers/models/auto/auto_factory.py` (5.24.0).
    """
    return next(_with_config(cls, config), (cls, config))


def _remote_classes(config: PreTrainedConfig) -> Iterator[Candidate]:
    """Classes that the model's own repository defines (`auto_map`). Executes its code."""
    references: dict[str, str] = getattr(config, "auto_map", None) or {}
    for head in _HEADS:
        if head in references:
            yield get_class_from_dynamic_module(references[head], config.name_or_path), config


def _module_classes(config: PreTrainedConfig) -> Iterator[Candidate]:
    """Concrete classes next to the config's own class; those that generate first, for they have the head."""
    try:
        module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    except ImportError:
        return
    classes = [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, PreTrainedModel)
        and cls.__module__ == module.__name__
        and getattr(cls, "config_class", None) is type(config)
        and "forward" in vars(cls)
    ]
    for cls in sorted(classes, key=lambda cls: not issubclass(cls, GenerationMixin)):
        yield cls, config
