"""Facts that come from watching a model run: heads, packing, and how tensors flow."""

import re
from collections.abc import Mapping

from torch import nn

from planc.model import ranges
from planc.model.building.tracing_facts import Facts, facts
from planc.model.building.tracing_run import UnwatchedError, watch
from planc.model.dataflow import Flow
from planc.model.manifest import ManifestFile, ModuleEntry, ParameterEntry


def trace_facts(model: nn.Module, file: ManifestFile) -> ManifestFile:
    """`file` with heads, attention, packing and `flows`, as seen in one forward of `model`.

    Layers that are alike run once, so that the meta device takes milliseconds. Where the model can't be called with
    token ids alone, `file` comes back with what it raised; `model` is left unchanged.
    """
    try:
        flow = watch(model)
    except UnwatchedError as error:
        return file.model_copy(update={"unwatched": str(error)})
    found = facts(flow)
    watched = _watched_names(flow)
    modules = tuple(_with_facts(entry, found, watched) for entry in file.modules)
    return file.model_copy(update={"modules": modules, "flows": (flow.to_json(),)})


def _watched_names(flow: Flow) -> Mapping[str, str]:
    """The layer that was watched, for each layer like it."""
    return {name: kind.module for kind in flow.kinds for name in kind.alike}


def _with_facts(entry: ModuleEntry, found: Facts, watched: Mapping[str, str]) -> ModuleEntry:
    name = _watched_name(_first_name(entry), watched)
    prefix = f"{name}." if name else ""
    parameters = tuple(_with_packing(parameter, found, prefix) for parameter in entry.parameters)
    heads, attention = found.heads.get(name), found.attention.get(name)
    if parameters == entry.parameters and heads is None and attention is None:
        return entry
    return entry.model_copy(
        update={
            "parameters": parameters,
            "heads": heads or entry.heads,
            "attention": attention or entry.attention,
        }
    )


def _with_packing(parameter: ParameterEntry, found: Facts, prefix: str) -> ParameterEntry:
    packing = found.packing.get(prefix + parameter.name)
    return parameter if packing is None else parameter.model_copy(update={"packing": packing})


def _first_name(entry: ModuleEntry) -> str:
    """The concrete name of the first module that `entry` stands for."""
    if not entry.at:
        return entry.name
    numbers = iter(next(iter(ranges.expand(ranges.parse(entry.at[0])))))
    return re.sub(r"\*", lambda _: str(next(numbers)), entry.name)


def _watched_name(name: str, watched: Mapping[str, str]) -> str:
    """`name` in the layer that was watched instead of its own."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        layer = watched.get(".".join(parts[:end]))
        if layer is not None:
            return ".".join([layer, *parts[end:]])
    return name
