"""A checkpoint folder as the weights of a model."""

from pathlib import Path
from typing import Any

from torch import nn

from planc.runtime.checkpoint.converted import ConvertedSource, converted
from planc.runtime.checkpoint.dequantising import forget_quantization, quantizer_for
from planc.runtime.checkpoint.quantisation import quantization_of
from planc.runtime.sources import SafetensorsFolder


def read_checkpoint(model: nn.Module, folder: Path) -> ConvertedSource:
    """The tensors of `folder` with the names of `model`, dequantised where they are quantised; reads headers alone.

    `model` isn't called quantised afterwards, as its weights won't be. Raises `CheckpointError` for what can't be
    read, weights of other methods of quantisation among it.
    """
    config: Any = getattr(model, "config", None)
    fields = quantization_of(folder, config.to_dict() if config is not None else {})
    quantizer = quantizer_for(fields, folder) if fields is not None else None
    source = converted(model, SafetensorsFolder(folder), quantizer)
    source.quantization = fields
    forget_quantization(model)
    return source
