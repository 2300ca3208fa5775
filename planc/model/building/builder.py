"""Build a model on the meta device, and write down what it is."""

import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from planc.model.building.instantiate import instantiate
from planc.model.building.modules import module_entries
from planc.model.building.reading import call_factory, named_config, read_config
from planc.model.errors import ModelError
from planc.model.manifest import ManifestFile, Plans
from planc.model.source import ConfigSource, FactorySource, ManifestSource, NamedSource, Source, find_source


def build(source: Source, *, trust_remote_code: bool = False) -> ManifestFile:
    """The manifest of what `source` names. Raises ModelError."""
    return build_manifest(build_model(source, trust_remote_code=trust_remote_code), source.name)


def build_model(
    model: Source | str, *, config: Mapping[str, Any] | None = None, trust_remote_code: bool = False
) -> nn.Module:
    """The model on the meta device; `model` may be any form of MODEL. Raises ModelError."""
    source = find_source(model, config) if isinstance(model, str) else model
    match source:
        case ManifestSource():
            raise ModelError(f"`{source.name}` is a manifest: no model can be built from one")
        case FactorySource():
            return call_factory(source)
        case ConfigSource():
            return instantiate(read_config(source, trust_remote_code), name=source.name)
        case NamedSource():
            return instantiate(named_config(source, trust_remote_code), name=source.name)


def build_manifest(model: nn.Module, name: str) -> ManifestFile:
    """The facts of `model`, called `name`. Reads shapes and attributes, never the values of a weight."""
    config = getattr(model, "config", None)
    return ManifestFile(
        name=name,
        class_name=type(model).__name__,
        model_type=getattr(config, "model_type", None),
        base_model_prefix=getattr(model, "base_model_prefix", ""),
        dtype=_dtype_name(_model_dtype(model)),
        versions=versions(),
        modules=module_entries(model, lambda _, parameter: _dtype_name(parameter.dtype)),
        ties=tuple(_ties(model)),
        plans=_plans(model),
    )


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what a model looks like."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def _model_dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _ties(model: nn.Module) -> Iterator[tuple[str, str]]:
    """(tied parameter, the parameter it shares), as transformers declares them and as tensors are shared."""
    declared: dict[str, str] = dict(getattr(model, "all_tied_weights_keys", None) or {})
    yield from declared.items()


def _plans(model: nn.Module) -> Plans:
    plans: dict[str, Any] = {
        kind: dict(getattr(model, f"_{kind}_plan", None) or {}) for kind in ("tp", "ep", "fsdp", "pp")
    }
    return Plans(**plans)
