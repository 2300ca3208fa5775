"""Which quantised checkpoints are read. Needs no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planc.runtime.errors import CheckpointError

READ = ("fp8", "mxfp4", "mxfp8")
"""The methods whose checkpoints are read: `dequantising` has what does it."""
_CONFIG_NAME = "config.json"


class QuantisedError(CheckpointError):
    """A checkpoint of weights that are quantised by a method that isn't read."""


def quantization_of(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`quantization_config` of the checkpoint in `folder`: that of its own `config.json`, else of the model's `config`.

    None where it isn't quantised. Raises `QuantisedError` for a method that isn't read, `CheckpointError` for a
    `config.json` that is none. Source: `get_hf_quantizer`, `quantizers/auto.py` of transformers 5.24.0.
    """
    fields = in_config(_config_in(folder) or config)
    if fields is not None and (method := method_name(fields)) not in READ:
        raise QuantisedError(
            f"`{folder}` holds weights quantised by `{method}`, which planc doesn't read: it reads and dequantises "
            f"{', '.join(f'`{name}`' for name in READ)}; load this one with transformers, or take one that isn't "
            "quantised"
        )
    return fields


def in_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`quantization_config` of a config's fields, or of the text model's; None where there is none."""
    for part in (config, config.get("text_config")):
        found = part.get("quantization_config") if isinstance(part, Mapping) else None
        if isinstance(found, Mapping) and found:
            return found
    return None


def method_name(fields: Mapping[str, Any]) -> str:
    """The method of a `quantization_config`, in transformers' words, which has two for bitsandbytes."""
    for bits in (8, 4):
        if fields.get(f"load_in_{bits}bit"):
            return f"bitsandbytes_{bits}bit"
    method = fields.get("quant_method")
    return str(getattr(method, "value", method))


def _config_in(folder: Path) -> Mapping[str, Any] | None:
    file = folder / _CONFIG_NAME
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"`{file}` is no config: {error}") from None
    return found if isinstance(found, dict) else None
