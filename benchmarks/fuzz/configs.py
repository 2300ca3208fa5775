"""Configs that are wrong in one field: a finding at the field, never an exception."""

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.fuzz.odd import ODD, places, replaced
from planc.model import bundled
from planc.model.source import read_json

# Fields that no bundled config has, and that configs of others do.
MORE = ("base_model_tp_plan", "base_model_ep_plan", "num_labels", "quantization_config", "attn_implementation",
        "torch_dtype", "id2label", "layer_types", "auto_map", "is_encoder_decoder", "depths")  # fmt: skip
LAYERS = 2


def cases() -> Iterator[tuple[str, bytes]]:
    """Every field of every bundled config replaced by each odd value: what was done, and the file's content."""
    for name in bundled.index():
        config = small(read_json(bundled.config_path(name)))
        for path in dict.fromkeys([*places(config), *((field,) for field in MORE)]):
            for number, value in enumerate(ODD):
                title = f"{name}: {'.'.join(map(str, path))} = odd value {number}"
                yield title, json.dumps(replaced(config, path, value)).encode()


def small(config: dict[str, Any]) -> dict[str, Any]:
    """`config` with few layers: what a field does doesn't depend on how many there are."""
    layers = {"num_hidden_layers": LAYERS, "first_k_dense_replace": 1}
    return config | {field: value for field, value in layers.items() if field in config}
