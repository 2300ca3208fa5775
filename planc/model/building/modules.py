"""From the modules of a torch model to grouped module entries, and back in the same order."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from planc.model import ranges
from planc.model.building.facts import module_facts
from planc.model.expansion import order
from planc.model.manifest import ModuleEntry, ParameterEntry

# State of a run, not structure.
_STATE = {"training", "gradient_checkpointing"}
# As `str(int)` writes it, so that the name can be put together again.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
Dtype = Callable[[str, nn.Parameter], str]


def module_entries(model: nn.Module, dtype: Dtype) -> tuple[ModuleEntry, ...]:
    """Entries for all of `named_modules()`; `dtype` names the dtype of a parameter, given its full name."""
    modules = dict(model.named_modules())
    sizes = _sizes(modules)
    alone = {
        name: ModuleEntry(
            name=split(name)[0],
            class_name=type(module).__name__,
            sizes=sizes[name],
            parameters=tuple(_parameters(name, module, dtype)),
            **module_facts(module, modules.get(name.rpartition(".")[0])),
        )
        for name, module in modules.items()
    }
    for parent, children in _out_of_order(alone).items():
        alone[parent] = alone[parent].model_copy(update={"children": children})
    return _grouped(alone)


def _grouped(alone: Mapping[str, ModuleEntry]) -> tuple[ModuleEntry, ...]:
    """One entry for all modules alike; entries of the same generic name stand together, else by first appearance."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, entry in alone.items():
        groups.setdefault(entry.name, {}).setdefault(entry.model_dump_json(), []).append(name)
    return tuple(_with_numbers(alone[names[0]], names) for alike in groups.values() for names in alike.values())


def _with_numbers(entry: ModuleEntry, names: list[str]) -> ModuleEntry:
    if "*" not in entry.name.split("."):
        return entry
    return entry.model_copy(update={"at": ranges.compress(split(name)[1] for name in names)})


def _out_of_order(alone: Mapping[str, ModuleEntry]) -> dict[str, tuple[str, ...]]:
    """Children, by parent, that `expansion.order` would not put in the order of `named_modules()`."""
    place = {generic: index for index, generic in enumerate(dict.fromkeys(entry.name for entry in alone.values()))}
    children: dict[str, list[str]] = {}
    for name in alone:
        if name:
            parent, _, child = name.rpartition(".")
            children.setdefault(parent, []).append(child)
    wrong = {}
    for parent, actual in children.items():
        prefix = f"{parent}." if parent else ""
        natural = order(sorted(actual, key=lambda child: place[alone[prefix + child].name]))
        if natural != actual:
            wrong[parent] = tuple(actual)
    return wrong


def split(name: str) -> tuple[str, tuple[int, ...]]:
    """`model.layers.3.mlp` as `model.layers.*.mlp` and `(3,)`; every segment that spells a number is one."""
    segments = name.split(".")
    numbers = []
    for place, segment in enumerate(segments):
        if segment[:1].isdecimal() and _NUMBER.fullmatch(segment):
            numbers.append(int(segment))
            segments[place] = "*"
    return ".".join(segments), tuple(numbers)


def _parameters(name: str, module: nn.Module, dtype: Dtype) -> Iterable[ParameterEntry]:
    prefix = f"{name}." if name else ""
    # What `named_parameters(recurse=False)` gives, which looks through all modules below, too.
    for own, parameter in module._parameters.items():
        if parameter is not None:
            yield ParameterEntry(name=own, shape=tuple(parameter.shape), dtype=dtype(prefix + own, parameter))


def _sizes(modules: Mapping[str, nn.Module]) -> dict[str, dict[str, int]]:
    """Each module's public integer and boolean attributes, without those that only repeat the layer's number."""
    sizes = {name: _integers(module) for name, module in modules.items()}
    alike: dict[str, list[str]] = {}
    for name in modules:
        alike.setdefault(split(name)[0], []).append(name)
    for generic, names in alike.items():
        if "*" not in generic.split("."):
            continue
        for attribute in list(sizes[names[0]]):
            if all(_is_layer_number(sizes[n].get(attribute), n) for n in names):
                for n in names:
                    del sizes[n][attribute]
    return sizes


def _is_layer_number(value: int | None, name: str) -> bool:
    return type(value) is int and value in split(name)[1]


def _integers(module: nn.Module) -> dict[str, int]:
    attributes: dict[str, Any] = vars(module)
    return {
        name: value
        for name, value in sorted(attributes.items())
        if isinstance(value, int) and not name.startswith("_") and name not in _STATE
    }
