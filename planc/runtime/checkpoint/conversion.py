"""How the tensors of a checkpoint become those of a model, and back.

The knowledge is transformers' own (5.24.0, `conversion_mapping.py`): its renamings and converters run on recorded
tensors. The loops follow `convert_and_load_state_dict_in_model` and `revert_weight_conversion` of
`core_model_loading.py`, with whose names the ones here are to be read.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from planc.program.placements import Region
from planc.runtime.checkpoint.dequantising import by_blocks, is_dequantising
from planc.runtime.checkpoint.expressions import Expression, Leaf, Reader, read_whole
from planc.runtime.checkpoint.recording import NotFollowedError, Recorded, recorded
from planc.runtime.errors import CheckpointError

# Name, shape and dtype of stored tensors.
Stored = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
LISTED = 5


@dataclass(frozen=True)
class Made:
    """A tensor: how it is made, its dtype, and a tensor on the meta device with its strides and its storage."""

    expression: Expression
    meta: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.expression.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.meta.dtype


@dataclass(frozen=True)
class Conversion:
    """`made` are the model's tensors by name, `unexpected` the stored ones that it has no place for.

    `used` are the transforms that matched something: what transformers remembers for the next save.
    """

    made: Mapping[str, Made] = field(default_factory=dict)
    unexpected: tuple[str, ...] = ()
    used: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Evaluated:
    """A tensor that a converter makes by more than moving elements: it is made whole, and the region cut out.

    `evaluate` takes the whole stored tensors, by name, and gives the result.
    """

    leaves: tuple[str, ...]
    sources: tuple[Leaf, ...]
    shape: tuple[int, ...]
    evaluate: Callable[[Mapping[str, Tensor]], Tensor]

    def read(self, region: Region, reader: Reader) -> Tensor:
        inputs = {leaf.name: read_whole(leaf, reader) for leaf in self.sources}
        if any(tensor.is_meta for tensor in inputs.values()):
            return torch.empty(region.shape, device="meta")
        result = self.evaluate(inputs)
        for dim, intervals in enumerate(region.dims):
            result = torch.cat([result.narrow(dim, a, b - a) for a, b in intervals] or [result.narrow(dim, 0, 0)], dim)
        return result


def is_of_transformers(model: nn.Module) -> bool:
    """Whether transformers may have converters for `model`."""
    return hasattr(model, "base_model_prefix") and hasattr(model, "config")


def to_model(model: nn.Module, stored: Stored, quantizer: Any = None) -> Conversion:
    """How the state dict of `model` is made of the `stored` tensors of a checkpoint.

    `model` is the whole model (of any dtype or device); other models than those of transformers take every tensor
    under its own name. With a `quantizer` (`quantizer_for`) the stored tensors are dequantised. Raises
    `CheckpointError` that names the stored tensors where a conversion is impossible.
    """
    state = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    if not is_of_transformers(model):
        kept = {name: _leaf(name, *stored[name]) for name in stored if name in state}
        return Conversion(kept, tuple(sorted(set(stored) - set(state))))
    from transformers.conversion_mapping import get_model_conversion_mapping

    transforms = by_blocks(get_model_conversion_mapping(model, hf_quantizer=quantizer))
    mappings, unexpected = _collect(model, state, stored, transforms)
    made = dict(_made(mappings, model, stored, state))
    lost = {leaf for name, tensor in made.items() if name not in state for leaf in tensor.expression.leaves}
    unexpected += sorted(lost - {leaf for name, m in made.items() if name in state for leaf in m.expression.leaves})
    used = tuple(transform for transform in transforms if transform.was_used())
    return Conversion({name: m for name, m in made.items() if name in state}, tuple(unexpected), used)


def from_model(model: nn.Module, stored: Stored) -> Mapping[str, Made]:
    """How the tensors of a checkpoint are made of the `stored` ones of the model, in the order of the files.

    As transformers 5.24.0 saves them: under the names and in the form of the checkpoint that the model was loaded
    from, or of the released ones.
    """
    transforms = _transforms_to_revert(model) if is_of_transformers(model) else None
    if transforms is None:
        return {name: _leaf(name, *tensor) for name, tensor in stored.items()}
    from transformers import core_model_loading as core

    backwards = [transform.reverse_transform() for transform in transforms[::-1]]
    renamings, converters = _kinds(backwards)
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    mappings: dict[str, Any] = {}
    collected: dict[str, dict[str, list[str]]] = {}
    for name in sorted(stored, key=core.dot_natural_key):
        target, pattern = core.apply_converters(name, converters)
        if pattern is None:
            target = core.apply_renamings(name, renamings)
        if target not in mappings:
            mappings[target] = core.WeightRenaming(name, target) if pattern is None else deepcopy(by_pattern[pattern])
        collected.setdefault(target, {}).setdefault(pattern or name, []).append(name)
    found = {}
    for target, (mapping, sources) in _paired(mappings, collected).items():
        for name, made in _convert(target, mapping, sources, model, stored, {}).items():
            renamed = core.apply_renamings(name, renamings) if hasattr(mapping, "operations") else name
            found[renamed] = made
    return found


def _transforms_to_revert(model: Any) -> list[Any] | None:
    """None for a model that was made from scratch and has no transforms: transformers doesn't sort its names then."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    transforms = getattr(model, "_weight_conversions", None)
    if transforms is None:
        found = get_model_conversion_mapping(model, add_legacy=False)
        return [transform for transform in found if not isinstance(transform, PrefixChange)] or None
    return list(transforms)


def _kinds(transforms: list[Any]) -> tuple[list[Any], list[Any]]:
    from transformers.core_model_loading import WeightConverter, WeightRenaming

    renamings = [transform for transform in transforms if isinstance(transform, WeightRenaming)]
    return renamings, [transform for transform in transforms if isinstance(transform, WeightConverter)]


def _collect(
    model: Any, state: Mapping[str, Tensor], stored: Stored, transforms: list[Any]
) -> tuple[dict[str, tuple[Any, dict[str, list[str]]]], list[str]]:
    """For each first target name its transform, and the stored names by the pattern that they matched."""
    from transformers import core_model_loading as core

    renamings, converters = _kinds(transforms)
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    prefix = model.base_model_prefix
    mappings: dict[str, Any] = {}
    collected: dict[str, dict[str, list[str]]] = {}
    unexpected = []
    for name in sorted(stored, key=core.dot_natural_key):
        target, pattern = core.rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = core.rename_source_key(name, [], [], base_model_prefix=prefix, meta_state_dict=state)
        if target not in state:
            unexpected.append(name)
            continue
        if target not in mappings:
            mappings[target] = core.WeightRenaming(name, target) if pattern is None else deepcopy(by_pattern[pattern])
        collected.setdefault(target, {}).setdefault(pattern or name, []).append(name)
    return _paired(mappings, collected), unexpected


def _paired(
    mappings: dict[str, Any], collected: dict[str, dict[str, list[str]]]
) -> dict[str, tuple[Any, dict[str, list[str]]]]:
    return {target: (mapping, collected[target]) for target, mapping in mappings.items()}


def _made(
    mappings: Mapping[str, tuple[Any, dict[str, list[str]]]],
    model: Any,
    stored: Stored,
    state: Mapping[str, Tensor],
) -> Iterator[tuple[str, Made]]:
    for target, (mapping, sources) in mappings.items():
        yield from _convert(target, mapping, sources, model, stored, state).items()


def _convert(
    target: str,
    mapping: Any,
    sources: Mapping[str, list[str]],
    model: Any,
    stored: Stored,
    state: Mapping[str, Tensor],
) -> dict[str, Made]:
    """What one transform makes of its sources; `state` has the dtypes that sources are cast to first, if any."""
    names = [name for group in sources.values() for name in group]
    tensors = {name: recorded(name, *stored[name]) for name in names}
    try:
        results = _run(mapping, target, sources, tensors, model)
        made = {name: Made(result.expression, result.meta) for name, result in results.items()}
    except NotFollowedError:
        return _evaluated(target, mapping, sources, model, stored, state.get(target))
    except Exception as error:
        _refuse_gap(target, sources)
        listed = ", ".join(f"`{name}` {list(stored[name][0])}" for name in names[:LISTED])
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"`{target}` can't be made of {listed}{more}: {reason}") from None
    if any(name in state and tuple(state[name].shape) != tensor.shape for name, tensor in made.items()):
        _refuse_gap(target, sources)
    return made


def _refuse_gap(target: str, sources: Mapping[str, list[str]]) -> None:
    """Name the tensor that is missing in a list of them, where that is why a conversion failed."""
    if gap := _gap(sources):
        raise CheckpointError(f"`{target}` needs the tensor `{gap}`, which the checkpoint lacks") from None


def _run(
    mapping: Any, target: str, sources: Mapping[str, list[str]], tensors: Mapping[str, Any], model: Any
) -> dict[str, Any]:
    """Run a copy of transformers' transform; the results by full name."""
    running = deepcopy(mapping)
    for pattern, names in sources.items():
        for name in names:
            running.add_tensor(target, name, pattern, tensors[name])
    results = running.convert(target, model=model, config=model.config)
    return {name: result[0] if isinstance(result, list) else result for name, result in results.items()}


def _evaluated(
    target: str,
    mapping: Any,
    sources: Mapping[str, list[str]],
    model: Any,
    stored: Stored,
    like: Tensor | None,
) -> dict[str, Made]:
    """What a transform makes that can't be followed: shapes from a run without values, values when they are read."""
    names = tuple(name for group in sources.values() for name in group)

    def run(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # transformers casts the sources of a converter to the parameter's dtype before it runs, but for codes.
        dtype = None if like is None or is_dequantising(mapping) else like.dtype
        cast = {name: tensor if dtype is None else tensor.to(dtype) for name, tensor in tensors.items()}
        return _run(mapping, target, sources, cast, model)

    metas = {name: torch.empty(stored[name][0], dtype=stored[name][1], device="meta") for name in names}
    leaves = tuple(Leaf(name, tuple(stored[name][0])) for name in names)

    def only(result: str) -> Callable[[Mapping[str, Tensor]], Tensor]:
        return lambda tensors: run(tensors)[result]

    return {
        result: Made(Evaluated(names, leaves, tuple(meta.shape), only(result)), meta)
        for result, meta in run(metas).items()
    }


def _gap(sources: Mapping[str, list[str]]) -> str | None:
    """The first stored tensor that is missing in a list of them, such as that of one expert of many."""
    longest = max(sources.values(), key=len)
    for pattern, names in sources.items():
        if "*" not in pattern or len(longest) == 1:
            continue
        numbers = {tuple(name.split(".")) for name in names}
        template = next(iter(numbers))
        varying = [i for i in range(len(template)) if len({parts[i] for parts in numbers}) > 1]
        places = varying or [i for i, part in enumerate(template) if part.isdigit()][-1:]
        if len(places) != 1 or not all(parts[places[0]].isdigit() for parts in numbers):
            continue
        found = {int(parts[places[0]]) for parts in numbers}
        count = max(len(longest), max(found) + 1)
        if lacking := sorted(set(range(count)) - found):
            return ".".join((*template[: places[0]], str(lacking[0]), *template[places[0] + 1 :]))
    return None


def _leaf(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Made:
    made: Recorded = recorded(name, shape, dtype)
    return Made(made.expression, made.meta)
