"""The small copy: a model of the same structure that runs in milliseconds."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from planc.verify.copying import depth
from planc.verify.copying.building import build, classes, config_from, first_line
from planc.verify.copying.errors import CopyError
from planc.verify.copying.initialise import initialise
from planc.verify.copying.inputs import Batch, batches
from planc.verify.copying.variations import VARIATIONS, variation
from planc.verify.copying.widths import candidates, shrink
from planc.verify.exact import Exact
from planc.verify.observing import outputs

MOST_PARAMETERS = 12_000_000
"""A copy with more is not small: every rank holds one, in double precision."""
_MOST_ATTEMPTS = 60
_MOST_SECONDS = 60.0
_SMALLEST = 3
"""So many of the smallest candidates are tried with every variation before the larger ones."""


@dataclass(frozen=True, slots=True)
class SmallCopy:
    """A model that keeps the structure of a large one.

    `model` is whole, on the CPU, in `float64` and in evaluation mode; nobody changes it. `batch` is one batch it takes,
    `seed` made its weights. `layers` has, by the name of a stack of layers, the large model's layer that each of the
    copy's stands for.
    """

    model: nn.Module
    batch: Batch
    layers: Mapping[str, tuple[int, ...]]
    seed: int

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def small_copy(
    config: PreTrainedConfig,
    sizes: Sequence[int],
    *,
    class_name: str | None = None,
    marks: depth.Marks = lambda name, index: None,
    seed: int = 0,
    least_layers: int = 2,
) -> SmallCopy:
    """A copy of the model that `config` describes, of class `class_name` or the first that can be made.

    Every width and count keeps its divisibility by each of the mesh `sizes`; every kind of layer is there, once for
    each of its `marks`, and `least_layers` in all. Raises CopyError with the reasons.
    """
    reasons: dict[str, None] = {}
    started = time.monotonic()
    for attempt, (cls, fields) in enumerate(_attempts(config, sizes, class_name)):
        if attempt >= _MOST_ATTEMPTS or time.monotonic() - started > _MOST_SECONDS:
            break
        try:
            return _make(cls, config, fields, marks, seed, least_layers)
        except CopyError as error:
            reasons[str(error)] = None
    raise CopyError("; ".join(list(reasons)[:3]) or "no model class takes this config")


def _attempts(
    config: PreTrainedConfig, sizes: Sequence[int], class_name: str | None
) -> Iterator[tuple[type[PreTrainedModel], dict[str, Any]]]:
    large = config.to_dict()
    sizes = sorted({size for size in sizes if size > 1})
    models = [cls for cls in classes(config) if class_name in (None, cls.__name__)]
    found = list(candidates(large, sizes))
    for some in (found[:_SMALLEST], found[_SMALLEST:]):
        for number in range(VARIATIONS):
            for factors in some:
                small = variation(shrink(large, factors, sizes), number)
                if small is not None:
                    yield from ((cls, small) for cls in models)


def _make(
    cls: type[PreTrainedModel],
    template: PreTrainedConfig,
    fields: Mapping[str, Any],
    marks: depth.Marks,
    seed: int,
    least_layers: int,
) -> SmallCopy:
    shape = build(cls, _part(cls, config_from(template, fields)), meta=True)
    layers: dict[str, tuple[int, ...]] = {}
    lengths: dict[int, int] = {}
    for name, stack in depth.stacks(shape):
        layers[name] = depth.represented(name, stack, marks, least_layers)
        lengths[len(stack)] = max(lengths.get(len(stack), 0), len(layers[name]))
    config = _part(cls, config_from(template, depth.cut(fields, lengths)))
    if (count := sum(p.numel() for p in build(cls, config, meta=True).parameters())) > MOST_PARAMETERS:
        raise CopyError(f"the smallest copy has {count:,} parameters")
    generator = torch.Generator().manual_seed(seed)
    with Exact():
        model = build(cls, config, meta=False).double().eval()
    initialise(model, generator)
    return SmallCopy(model, _working_batch(model, generator), layers, seed)


def _part(cls: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedConfig:
    """The config that `cls` takes: `config`, or its text config."""
    expected = cls.config_class
    text = config.get_text_config()
    takes_text = isinstance(expected, type) and not isinstance(config, expected) and isinstance(text, expected)
    return text if takes_text else config


def _working_batch(model: nn.Module, generator: torch.Generator) -> Batch:
    reasons = []
    for batch in batches(model, generator):
        try:
            with torch.no_grad(), Exact():
                outputs(model, batch)
            return batch
        except Exception as error:  # models raise whatever their inputs make them raise
            reasons.append(first_line(error))
    raise CopyError(f"{type(model).__name__} does not run: {'; '.join(reasons[:2]) or 'no inputs known for it'}")
