"""Which layers of a model are alike, so that one of each kind is watched."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from planc.model.dataflow import LayerKind

_OWN = frozenset({"training", "layer_idx"})


def layer_lists(model: nn.Module) -> dict[str, nn.ModuleList]:
    """The lists of layers by name: those that are in no other list, of two layers or more."""
    lists: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{other}.") for other in lists)
        if isinstance(module, nn.ModuleList) and len(module) > 1 and not inside:
            lists[name] = module
    return lists


def kinds(name: str, layers: nn.ModuleList) -> list[LayerKind]:
    """The layers of a list, grouped with those that differ in nothing but their number."""
    counted = _counting_attributes(layers)
    groups: dict[Any, list[str]] = {}
    for number, layer in enumerate(layers):
        groups.setdefault(_signature(layer, counted), []).append(f"{name}.{number}")
    return [LayerKind(group[0], tuple(group)) for group in groups.values()]


@contextmanager
def shortened(model: nn.Module) -> Iterator[list[LayerKind]]:
    """Each list of layers cut after the first layer of its last kind, for as long as the context lasts.

    Numbers stay what they are, for models that look up a layer's type by it.
    """
    whole: list[tuple[nn.ModuleList, dict[str, nn.Module]]] = []
    found: list[LayerKind] = []
    try:
        for name, layers in layer_lists(model).items():
            of_list = kinds(name, layers)
            found.extend(of_list)
            keep = 1 + max(int(kind.module.rpartition(".")[2]) for kind in of_list)
            whole.append((layers, dict(layers._modules)))
            layers._modules = dict(list(layers._modules.items())[:keep])
        yield found
    finally:
        for layers, modules in whole:
            layers._modules = modules


def _signature(layer: nn.Module, counted: frozenset[tuple[str, str]]) -> Any:
    return tuple(
        (
            name,
            type(module),
            tuple((key, None if p is None else tuple(p.shape)) for key, p in module._parameters.items()),
            tuple(
                (key, value)
                for key, value in sorted(vars(module).items())
                if isinstance(value, int | str | None) and key not in _OWN and (name, key) not in counted
            ),
        )
        for name, module in layer.named_modules()
    )


def _counting_attributes(layers: nn.ModuleList) -> frozenset[tuple[str, str]]:
    """Attributes that count the layers: their value less the layer's number is the same in all of them."""
    seen: dict[tuple[str, str], set[int]] = {}
    for number, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for key, value in vars(module).items():
                if isinstance(value, int) and not isinstance(value, bool):
                    seen.setdefault((name, key), set()).add(value - number)
    return frozenset(key for key, offsets in seen.items() if len(offsets) == 1)
