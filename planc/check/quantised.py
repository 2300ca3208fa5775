"""How many features of a quantised weight can't be told apart by a shard."""

from collections.abc import Iterator
from dataclasses import dataclass

from planc.check.rule import CheckContext
from planc.check.sharding import Sharded

# Bits of the integers that values are packed into.
_WORD = 32
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


def _is_quantised(shard: Sharded, context: CheckContext) -> bool:
    """Linears and block-wise experts, but for the head and what the config leaves out.

    Source: `should_convert_module`, `replace_with_fp8_linear`, transformers 5.24.0.
    """
    file, module = context.manifest.file, shard.module
    is_linear = "out_features" in module.entry.sizes and module.name != file.output_embeddings
    is_block_of_experts = module.entry.experts is not None and _block_sizes(context) is not None and shard.dim > 0
    if not is_linear and not is_block_of_experts:
        return False
    patterns = file.quantization.not_converted if file.quantization else ()
    return not any(
        module.name == p or module.name.startswith(f"{p}.") or module.name.endswith(p) for p in patterns if p
    )


def _block_sizes(context: CheckContext) -> tuple[int, int] | None:
    """`weight_block_size` of FP8: `[output, input]` features that share a scale."""
    config = context.manifest.file.config.get("quantization_config")
    blocks = config.get("weight_block_size") if isinstance(config, dict) else None
    if isinstance(blocks, list | tuple) and len(blocks) == 2 and all(isinstance(b, int) and b > 0 for b in blocks):
        return blocks[0], blocks[1]
    return None
