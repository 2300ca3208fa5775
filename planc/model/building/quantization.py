"""`quantization_config` as far as shards must respect it. Quantizers themselves are never made."""

from collections.abc import Iterator, Mapping
from typing import Any

from planc.model.manifest import Quantization

# Names of one and the same thing in the quantization configs of transformers 5.24.0 (utils/quantization_config.py)
# and of the tools that write them.
_BITS = ("bits", "nbits", "num_bits", "w_bit")
_GROUP = ("group_size", "q_group_size", "in_group_size")
_NOT_CONVERTED = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "ignored_layers", "exclude_modules")
# Methods whose format fixes what other methods configure: bits and the features that share a scale (the block of the
# OCP microscaling formats, 32; of NVFP4, 16).
_FIXED = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32), "fp8": (8, None), "fbgemm_fp8": (8, None)}

# No weight has more features; a config is as trusted as the place it comes from.
_MOST = 2**31


def quantization(config: object) -> Quantization | None:
    """The facts of `config.quantization_config`, or of the text model's; None where the model isn't quantised.

    Source: `get_hf_quantizer`, `quantizers/auto.py` of transformers 5.24.0.
    """
    raw: Any = getattr(config, "quantization_config", None)
    if not raw and hasattr(config, "get_text_config"):
        raw = getattr(config.get_text_config(decoder=True), "quantization_config", None)
    fields = raw if isinstance(raw, Mapping) else raw.to_dict() if hasattr(raw, "to_dict") else None
    if not fields:
        return None
    method = str(getattr(fields.get("quant_method"), "value", fields.get("quant_method")))
    bits, group = _FIXED.get(method, (None, None))
    if fields.get("load_in_4bit") or fields.get("load_in_8bit"):
        method = "bitsandbytes"  # whatever else it says
        bits = 4 if fields.get("load_in_4bit") else 8
    not_converted: list[Any] = next((fields[name] for name in _NOT_CONVERTED if isinstance(fields.get(name), list)), [])
    return Quantization(
        method=method,
        bits=_integer(fields, _BITS) or bits,
        group_size=_integer(fields, _GROUP) or _block(fields) or group,
        not_converted=tuple(str(name) for name in not_converted),
    )


def _integer(fields: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first positive integer under one of `names`, here or in a nested section for the weights (-1 means none)."""
    for section in _sections(fields):
        for name in names:
            value = section.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST:
                return value
    return None


def _sections(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """`fields` itself, then what compressed-tensors nests: `config_groups.*.weights`."""
    yield fields
    groups = fields.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
            yield group["weights"]


def _block(fields: Mapping[str, Any]) -> int | None:
    """The side of the square blocks of block-wise fp8."""
    block: Any = fields.get("weight_block_size")
    square = isinstance(block, list | tuple) and len(block) == 2 and block[0] == block[1]
    return block[0] if square and isinstance(block[0], int) and 0 < block[0] <= _MOST else None


def without_quantization(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A config's fields without `quantization_config`, its own or that of a model within."""
    return {
        name: without_quantization(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name != "quantization_config"
    }
