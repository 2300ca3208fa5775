"""Which layers a copy needs to have one of every kind."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from planc.verify.copying.fields import Field, Path, replaced
from planc.verify.copying.roles import Role, role

_LAYER_WORDS = {"layer", "layers", "depth", "depths", "blocks", "stack", "stages"}
# What a plan says of layer `index` of the stack called `name`: layers of one kind may get different rules.
Marks = Callable[[str, int], Hashable]


def stacks(model: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    """Lists of layers: module lists of more than one member whose members hold modules of their own."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1 and any(True for _ in module[0].children()):
            yield name, module


def kind(layer: nn.Module) -> tuple[Any, ...]:
    """What makes layers alike: classes, parameter shapes and plain settings of all their modules, but layer numbers."""
    parts = []
    for name, module in layer.named_modules():
        shapes = tuple((n, tuple(p.shape)) for n, p in module.named_parameters(recurse=False))
        parts.append((name, type(module).__name__, shapes, _settings(module)))
    return tuple(parts)


def _settings(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """Strings and booleans of a module (`attention_type`, `is_sliding`), and whether a number is there at all."""
    settings = []
    for key, value in vars(module).items():
        if key.startswith("_") or key == "training" or "idx" in key or "layer_number" in key:
            continue
        if isinstance(value, str | bool):
            settings.append((key, value))
        elif value is None or isinstance(value, int | float):
            settings.append((key, value is None))
    return tuple(settings)


def represented(name: str, layers: nn.ModuleList, marks: Marks, least: int = 2) -> tuple[int, ...]:
    """The layer of the large model that each layer of the copy stands for.

    The copy has the first layers of the stack, so many (`least`, where there are so many) that every kind is there, and
    as often as a plan treats layers of that kind differently; each stands for one of its own kind.
    """
    kinds = [kind(layer) for layer in layers]
    wanted: dict[Any, dict[Hashable, int]] = {}
    for index, of_kind in enumerate(kinds):
        wanted.setdefault(of_kind, {}).setdefault(marks(name, index), index)
    length, missing = 0, Counter({of_kind: len(ways) for of_kind, ways in wanted.items()})
    while length < min(least, len(kinds)) or any(count > 0 for count in missing.values()):
        missing[kinds[length]] -= 1
        length += 1
    return tuple(_in_turn(kinds[:length], {of_kind: list(ways.values()) for of_kind, ways in wanted.items()}))


def _in_turn(kinds: Sequence[Any], wanted: Mapping[Any, Sequence[int]]) -> Iterator[int]:
    seen: Counter[Any] = Counter()
    for of_kind in kinds:
        yield wanted[of_kind][seen[of_kind] % len(wanted[of_kind])]
        seen[of_kind] += 1


def cut(config: Mapping[str, Any], lengths: Mapping[int, int]) -> dict[str, Any]:
    """`config` with stacks of `old` layers cut to `new`, for each `old: new` of `lengths`.

    Layer counts are found by name and value, per-layer lists by their length, per-layer mappings by their keys.
    """

    def new(path: Path, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and _is_depth(Field(path, value)):
            return lengths.get(value, value)
        return value

    return {key: _cut_value(value, lengths) for key, value in replaced(config, new).items()}


def _cut_value(value: Any, lengths: Mapping[int, int]) -> Any:
    if isinstance(value, list) and len(value) in lengths and len(value) > 1:
        return value[: lengths[len(value)]]
    if isinstance(value, dict):
        if value and all(str(key).isdigit() for key in value):
            return {key: item for key, item in value.items() if int(key) < max(lengths.values(), default=1)}
        return {key: _cut_value(item, lengths) for key, item in value.items()}
    return value


def _is_depth(field: Field) -> bool:
    """Whether a field counts layers, by its name."""
    words = set(field.name.lower().split("_"))
    return role(field.name) is Role.OTHER and bool(words & _LAYER_WORDS)
