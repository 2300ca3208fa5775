"""Every model type of transformers that carries a plan, for tests that sweep over them."""

import functools
import json
from pathlib import Path
from typing import Any

from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model.building.builder import build_model

# Model types that don't build from their default config, with the reason: the list that `tests/model` checks.
NOT_BUILDABLE: dict[str, str] = json.loads((Path(__file__).parent / "model" / "not_buildable.json").read_text())


def _plans(config: Any) -> bool:
    return any(getattr(config, f"base_model_{kind}_plan", None) for kind in ("tp", "ep"))


@functools.cache
def model_types_with_a_plan() -> tuple[str, ...]:
    """Model types whose config class, or the class of one of its parts, has a TP or EP plan."""
    found = []
    for model_type in CONFIG_MAPPING:
        cls = CONFIG_MAPPING[model_type]
        parts = [part for part in getattr(cls, "sub_configs", {}).values() if isinstance(part, type)]
        if any(map(_plans, (cls, *parts))):
            found.append(model_type)
    return tuple(found)


def buildable_model_types() -> list[str]:
    return [model_type for model_type in model_types_with_a_plan() if model_type not in NOT_BUILDABLE]


def meta_model(model_type: str) -> nn.Module:
    """The model of the default config, on the meta device."""
    return build_model(model_type)
