"""How quantised checkpoints are read: their weights are dequantised.

As transformers 5.24.0 does it with `dequantize=True`: by its own load operations, on the blocks that a rank needs
(`integrations/finegrained_fp8.py`, `integrations/mxfp4.py`).
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import Mxfp4Dequantize, convert_moe_packed_tensors
from transformers.quantizers.auto import AutoHfQuantizer
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name

from planc.runtime.checkpoint.blocks import Axis, Blockwise, Part
from planc.runtime.checkpoint.recording import NotFollowedError, Recorded
from planc.runtime.errors import CheckpointError

_CODES = (torch.float8_e4m3fn, torch.float8_e5m2)
_VALUES_PER_BYTE = 2
"""Of packed FP4 values."""


def quantizer_for(fields: Mapping[str, Any], folder: Path) -> HfQuantizer:
    """transformers' quantizer for the `quantization_config` of `folder`; dequantises. Raises `CheckpointError`."""
    try:
        quantizer: HfQuantizer = AutoHfQuantizer.from_config(dict(fields), pre_quantized=True)
    except Exception as error:  # config classes validate their fields in many ways
        raise CheckpointError(f"transformers refuses `quantization_config` of `{folder}`: {error}") from error
    quantizer.quantization_config.dequantize = True
    return quantizer


def by_blocks(transforms: list[Any]) -> list[Any]:
    """transformers' converters, with load operations that follow which blocks a part of the result is made of."""
    for transform in transforms:
        operations = getattr(transform, "operations", None)
        if operations is not None:
            transform.operations = [_by_blocks(operation) for operation in operations]
    return transforms


def is_dequantising(transform: Any) -> bool:
    """Whether a transform takes codes, which mustn't be cast before it runs."""
    return any(getattr(operation, "hf_quantizer", None) for operation in getattr(transform, "operations", ()))


def forget_quantization(model: Any) -> None:
    """Say in the configs of `model`, whose weights are plain, that it isn't quantised.

    Source: `HfQuantizer.remove_quantization_config`.
    """
    config: Any = getattr(model, "config", None)
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
    for part in filter(None, (config, text)):
        part.__dict__.pop("quantization_config", None)


class _Fp8ByBlocks(Fp8Dequantize):  # type: ignore[misc]
    """As transformers', on recorded tensors too."""

    def convert(self, input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        weights = input_dict.get("weight")
        if weights is not None and "weight_scale_inv" not in input_dict:
            # One that is stored as it is: cast when it is loaded, like all others.
            plain = weights[0] if isinstance(weights, list) else weights
            return {kwargs["full_layer_name"]: plain}
        found: dict[str, Any] = super().convert(input_dict, **kwargs)
        return found

    def _dequantize_one(self, quantized: Tensor, scales: Tensor, output_dtype: torch.dtype | None = None) -> Tensor:
        sizes = self._block_sizes(quantized.shape, scales.shape)
        if sizes is None or output_dtype is None or quantized.dtype not in _CODES:
            if isinstance(quantized, Recorded):
                raise NotFollowedError("codes that aren't one a value, in blocks of one size")
            plain: Tensor = super()._dequantize_one(quantized, scales, output_dtype=output_dtype)
            return plain
        function = partial(_of_blocks, values=super()._dequantize_one, sizes=sizes, dtype=output_dtype)
        if not isinstance(quantized, Recorded) or not isinstance(scales, Recorded):
            return function(quantized, scales)
        codes = Part(quantized.expression, tuple(Axis(dim, size) for dim, size in enumerate(sizes)))
        scale = Part(scales.expression, tuple(Axis(dim, 1) for dim in range(scales.ndim)))
        return _made((codes, scale), tuple(quantized.shape), sizes, function, output_dtype)

    def _block_sizes(self, shape: torch.Size, scales: torch.Size) -> tuple[int, ...] | None:
        """How many elements of each dim share a scale; None where the scales are no grid over the last two dims.

        As the config says, where that gives so many scales: the last block of a dim may be a part of one, which
        transformers 5.24.0, that divides the dim by the number of scales, refuses or gets wrong.
        """
        if len(scales) != len(shape) or len(shape) < 2 or 0 in (*shape, *scales) or shape[:-2] != scales[:-2]:
            return None
        said = self.hf_quantizer.quantization_config.weight_block_size
        if said and all(-(-size // block) == n for size, block, n in zip(shape[-2:], said, scales[-2:], strict=True)):
            return (*(1 for _ in shape[:-2]), *said)
        if any(size % count for size, count in zip(shape, scales, strict=True)):
            return None
        return tuple(size // count for size, count in zip(shape, scales, strict=True))


class _Mxfp4ByBlocks(Mxfp4Dequantize):  # type: ignore[misc]
    """As transformers', on recorded tensors too."""

    def convert(self, input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        model, name = kwargs["model"], kwargs["full_layer_name"]
        tensors = {key.rpartition("_")[2]: v[0] if isinstance(v, list) else v for key, v in input_dict.items()}
        if lacking := {"blocks", "scales"} - tensors.keys():
            raise ValueError(f"its {lacking.pop()} are missing")
        blocks, scales = tensors["blocks"], tensors["scales"]
        module, own = get_module_from_name(model, name)
        dtype = getattr(module, own).dtype
        if not isinstance(blocks, Recorded):
            return {name: convert_moe_packed_tensors(blocks, scales, dtype=dtype)}
        if blocks.ndim != 4 or blocks.shape[:-1] != scales.shape:
            raise ValueError("blocks are [experts, outputs, blocks, bytes], and scales are one a block")
        experts, outputs, count, width = blocks.shape
        # The result is transposed: [experts, inputs, outputs].
        sizes, follows = (1, width * _VALUES_PER_BYTE, 1), (Axis(0, 1), Axis(2, 1), Axis(1, 1))
        parts = (Part(blocks.expression, (*follows, None)), Part(scales.expression, follows))
        function = partial(convert_moe_packed_tensors, dtype=dtype)
        return {name: _made(parts, (experts, count * sizes[1], outputs), sizes, function, dtype)}


def _by_blocks(operation: Any) -> Any:
    kinds = {Fp8Dequantize: _Fp8ByBlocks, Mxfp4Dequantize: _Mxfp4ByBlocks}
    kind = kinds.get(type(operation))
    return kind(operation.hf_quantizer) if kind is not None else operation


def _made(
    parts: tuple[Part, ...], shape: tuple[int, ...], sizes: tuple[int, ...], function: Any, dtype: torch.dtype
) -> Recorded:
    return Recorded(Blockwise(parts, shape, sizes, function), torch.empty(shape, dtype=dtype, device="meta"))


def _of_blocks(codes: Tensor, scales: Tensor, values: Any, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The values of `codes`, whose last blocks may be cut short: filled up, as `values` takes whole ones."""
    rows, columns = (count * size for count, size in zip(scales.shape[-2:], sizes[-2:], strict=True))
    missing = (0, columns - codes.shape[-1], 0, rows - codes.shape[-2])
    filled = functional.pad(codes.view(torch.uint8), missing).view(codes.dtype) if any(missing) else codes
    found: Tensor = values(filled, scales, output_dtype=dtype)
    return found[..., : codes.shape[-2], : codes.shape[-1]]
