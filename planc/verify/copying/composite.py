"""Models of several models: a manifest has the config of their text model alone."""

from collections.abc import Mapping
from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from planc.verify.copying.building import classes, first_line
from planc.verify.copying.errors import CopyError


def whole_config(text: PreTrainedConfig, fields: Mapping[str, Any], class_name: str) -> PreTrainedConfig:
    """A config for `class_name`: `text`, or one that holds its `fields` where the class is made of several models.

    The other models get the fields that the class gives them. Raises CopyError.
    """
    if any(cls.__name__ == class_name for cls in classes(text)):
        return text
    cls: Any = getattr(transformers, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, PreTrainedModel)):
        return text
    kind: Any = getattr(cls, "config_class", None)
    if kind is None or "text_config" not in kind.sub_configs:
        return text
    try:
        config = kind(text_config=dict(fields))
    except Exception as error:  # a config class may raise anything on fields it didn't expect
        raise CopyError(f"{kind.__name__} doesn't take the text model's config: {first_line(error)}") from error
    assert isinstance(config, PreTrainedConfig)
    return config
