"""The names that a requirement may use, and their values."""

from collections.abc import Mapping
from typing import Any

from planc.check.rule import CheckContext
from planc.syntax.plan import SIZE_NAMES

SIZES = (*SIZE_NAMES, "world_size", "efsdp_size")


def known_names(context: CheckContext) -> dict[str, Any]:
    """Every name that a requirement may use: mesh sizes, then fields of the config, those of the text config first."""
    config = context.manifest.file.config
    text = config.get("text_config")
    fields = {**config, **(text if isinstance(text, dict) else {})}
    return {**fields, **{name: getattr(context.layout, name) for name in SIZES}}


def numbers(names: Mapping[str, Any]) -> dict[str, int]:
    """Those of `names` that are whole numbers; truth values are 0 and 1."""
    return {name: int(value) for name, value in names.items() if isinstance(value, int)}
