"""A checkpoint folder seen with the names and shapes of a model, whatever form its tensors have."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from planc.program.placements import Region
from planc.runtime.checkpoint.conversion import LISTED, Conversion, Made, is_of_transformers, to_model
from planc.runtime.interpreter.holders import Holders
from planc.runtime.sources import TensorSource


class ConvertedSource:
    """The tensors of `stored` in the form that the model holds them. Reads no more than a region is made of.

    `quantization` is the `quantization_config` of what is stored, where that is dequantised.
    """

    def __init__(self, stored: TensorSource, conversion: Conversion) -> None:
        self._stored = stored
        self._conversion = conversion
        self.quantization: Mapping[str, Any] | None = None

    @property
    def bytes_read(self) -> int:
        return self._stored.bytes_read

    @bytes_read.setter
    def bytes_read(self, count: int) -> None:
        self._stored.bytes_read = count

    @property
    def unexpected(self) -> tuple[str, ...]:
        """The stored tensors that the whole model has no place for."""
        return self._conversion.unexpected

    def where_stored(self, name: str) -> str:
        """Where a tensor of the checkpoint is, by the name that it has there."""
        return self._stored.where(name)

    def __contains__(self, name: str) -> bool:
        return name in self._conversion.made

    def __iter__(self) -> Iterator[str]:
        return iter(self._conversion.made)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._conversion.made[name].shape

    def dtype(self, name: str) -> torch.dtype:
        return self._conversion.made[name].dtype

    def read(self, name: str, region: Region) -> Tensor:
        return self._conversion.made[name].expression.read(region, self._stored.read)

    def where(self, name: str) -> str:
        """The file and the tensor; for tensors that are made of others, those."""
        leaves = self._conversion.made[name].expression.leaves
        if leaves == (name,):
            return self._stored.where(name)
        more = f" and {len(leaves) - LISTED} more" if len(leaves) > LISTED else ""
        if len(leaves) == 1:
            return self._stored.where(leaves[0])
        return f"`{name}`, made of {', '.join(self._stored.where(leaf) for leaf in leaves[:LISTED])}{more},"


def converted(model: nn.Module, stored: TensorSource, quantizer: Any = None) -> ConvertedSource:
    """`stored` with the names of `model`, which is whole and not sharded yet; dequantised with a `quantizer`.

    What transformers' conversions were used is remembered on the model, as `from_pretrained` of transformers 5.24.0
    does it, so that it is saved in the form in which it was found; one that is dequantised is saved as released.
    Raises `CheckpointError`.
    """
    conversion = to_model(model, {name: (stored.shape(name), stored.dtype(name)) for name in stored}, quantizer)
    # A stage of a pipeline may keep the name of a tied parameter that the checkpoint has under the other one.
    aliases: dict[str, Made] = {}
    for name, owner in ties_of(model).items():
        if (name in conversion.made) != (owner in conversion.made):
            aliases |= {name: conversion.made[owner]} if owner in conversion.made else {owner: conversion.made[name]}
    conversion = replace(conversion, made={**conversion.made, **aliases})
    if is_of_transformers(model) and quantizer is None:
        model._weight_conversions = list(conversion.used)  # type: ignore[assignment]
    return ConvertedSource(stored, conversion)


def ties_of(model: nn.Module) -> dict[str, str]:
    """For each tied parameter of a whole model the first name of the parameter that it is."""
    return {name: names[0] for names, _ in Holders(model) for name in names[1:]}


def is_optional(model: Any, name: str) -> bool:
    """Whether a checkpoint may lack the tensor `name`. As `_adjust_missing_and_unexpected_keys` of transformers."""
    return _matches(getattr(model, "_keys_to_ignore_on_load_missing", None) or (), name)


def may_be_surplus(model: Any, name: str) -> bool:
    """Whether a checkpoint may hold the tensor `name`, though the model has no place for it; see `is_optional`."""
    patterns = set(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())
    buffers = [buffer for buffer, _ in model.named_buffers()]
    if any(buffer.endswith("rotary_emb.inv_freq") for buffer in buffers):
        patterns.add(r"rotary_emb\.inv_freq")
    if any(buffer.endswith("position_ids") for buffer in buffers):
        patterns.add(r"(^|\.)position_ids$")
    return _matches(patterns, name)


def _matches(patterns: Any, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)
