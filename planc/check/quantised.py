"""How many features of a quantised weight can't be told apart by a shard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from planc.check.rule import CheckContext
from planc.check.sharding import Sharded

# Bits of the integers that values are packed into.
_WORD = 32
# `weight_block_size` where the config doesn't say (`FineGrainedFP8Config`, transformers 5.24.0).
_FP8 = ("fp8", "mxfp8")
_FP8_BLOCKS = (128, 128)
# Methods that quantise experts alone (`replace_with_mxfp4_linear`, transformers 5.24.0).
_EXPERTS_ONLY = ("mxfp4",)
# Methods that quantise linears alone, not the experts that are one tensor for all (`replace_with_bnb_linear`).
_LINEARS_ONLY = ("bitsandbytes",)
# Methods whose packed integers lie along the output features (AWQ packs `qweight`; GPTQ packs `qzeros` so).
_PACKS_OUTPUT = ("awq", "gptq")


@dataclass(frozen=True, slots=True)
class Grain:
    """A shard boundary must be a multiple of `size`; `what` lies in such a group."""

    method: str
    size: int
    what: str


def grains(shard: Sharded, context: CheckContext) -> Iterator[Grain]:
    """What a shard of this weight must respect; nothing where the weight isn't quantised.

    Of a Linear the last dim holds the input features, the one before it the output features.
    """
    quantization = context.manifest.file.quantization
    if quantization is None or len(shard.entry.shape) < 2 or not _is_quantised(shard, context):
        return
    method, group = quantization.method, quantization.group_size
    is_input = shard.dim == len(shard.entry.shape) - 1
    blocks = _block_sizes(context)
    if blocks:
        yield Grain(method, blocks[1 if is_input else 0], "features")
    elif is_input and group and group > 0:
        yield Grain(method, group, "input features")
    elif not is_input and method in _PACKS_OUTPUT and quantization.bits and quantization.bits < _WORD:
        yield Grain(method, _WORD // quantization.bits, "packed output features")


def cut_weights(context: CheckContext) -> list[Sharded]:
    """The quantised weights that the TP or the EP plan cuts into several parts: of linears and of experts."""
    quantization = context.manifest.file.quantization
    if quantization is None:
        return []
    return [
        shard
        for shard in context.sharded
        if context.layout.size(shard.axis) > 1
        and len(shard.entry.shape) > 1
        and (_is_experts(shard, quantization.method) or _is_linear(shard, context))
        and not _is_left_out(shard, context)
    ]


def _is_quantised(shard: Sharded, context: CheckContext) -> bool:
    """Linears and block-wise experts, but for the head and what the config leaves out.

    Source: `should_convert_module`, `replace_with_fp8_linear`, transformers 5.24.0.
    """
    is_experts = shard.module.entry.experts is not None and _block_sizes(context) is not None and shard.dim > 0
    return (is_experts or _is_linear(shard, context)) and not _is_left_out(shard, context)


def _is_experts(shard: Sharded, method: str) -> bool:
    """Whether it is of experts that the method may quantise."""
    return shard.module.entry.experts is not None and method not in _LINEARS_ONLY


def _is_linear(shard: Sharded, context: CheckContext) -> bool:
    """Whether it is of a linear that the method quantises: of all but the head."""
    file, module = context.manifest.file, shard.module
    of_experts = file.quantization is not None and file.quantization.method in _EXPERTS_ONLY
    return "out_features" in module.entry.sizes and module.name != file.output_embeddings and not of_experts


def _is_left_out(shard: Sharded, context: CheckContext) -> bool:
    """Whether the config leaves the module as it is; a `*` of its patterns stands for anything."""
    quantization, name = context.manifest.file.quantization, shard.module.name
    return any(
        name == p or name.startswith(f"{p}.") or name.endswith(p) or fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*")
        for p in (quantization.not_converted if quantization else ())
        if p
    )


def _block_sizes(context: CheckContext) -> tuple[int, int] | None:
    """`weight_block_size` of FP8: `[output, input]` features that share a scale."""
    config = _config(context)
    method = context.manifest.file.quantization.method if context.manifest.file.quantization else ""
    blocks = config.get("weight_block_size", _FP8_BLOCKS if method in _FP8 else None)
    if isinstance(blocks, list | tuple) and len(blocks) == 2 and all(isinstance(b, int) and b > 0 for b in blocks):
        return blocks[0], blocks[1]
    return None


def _config(context: CheckContext) -> Mapping[str, Any]:
    """`quantization_config`, or that of the text model; where both are missing, nothing."""
    whole = context.manifest.file.config
    text = whole.get("text_config")
    found = whole.get("quantization_config") or (text.get("quantization_config") if isinstance(text, dict) else None)
    return found if isinstance(found, dict) else {}
