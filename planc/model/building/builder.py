"""Build a model on the meta device, and write down what it is."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging as transformers_logging

from planc.model.building.blame import with_field
from planc.model.building.configs import config_fields
from planc.model.building.instantiate import instantiate
from planc.model.building.modules import module_entries
from planc.model.building.plain import plain
from planc.model.building.precision import kept_in_float32
from planc.model.building.quantization import quantization
from planc.model.building.reading import call_factory, named_config, read_config
from planc.model.choices import Choices
from planc.model.errors import ModelError
from planc.model.manifest import ManifestFile, Plans
from planc.model.source import ConfigSource, FactorySource, ManifestSource, NamedSource, Source, find_source
from planc.syntax.matching import generic_name

log = logging.getLogger(__name__)


def build(source: Source, *, trust_remote_code: bool = False) -> ManifestFile:
    """The manifest of what `source` names. Raises ModelError."""
    with _quiet():
        try:
            return _facts(source, trust_remote_code)
        except Exception as error:  # transformers and its models raise anything on values that they didn't expect
            if isinstance(source, ConfigSource):
                raise with_field(error, source.fields, partial(_built_from, source, trust_remote_code)) from error
            raise error if isinstance(error, ModelError) else with_field(error, {}, lambda _: None) from error


def _facts(source: Source, trust_remote_code: bool, trace: bool = True) -> ManifestFile:
    return build_manifest(build_model(source, trust_remote_code=trust_remote_code), source.name, trace=trace)


def _built_from(source: ConfigSource, trust_remote_code: bool, fields: Mapping[str, Any]) -> ManifestFile:
    """The facts of a model of other `fields`."""
    return _facts(replace(source, fields=fields), trust_remote_code, trace=False)


def build_model(
    model: Source | str,
    *,
    config: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    choices: Choices | None = None,
) -> nn.Module:
    """The model on the meta device; `model` may be any form of MODEL. Raises ModelError.

    `choices` are a dtype and implementations that go before what the config says.
    """
    source = find_source(model, config) if isinstance(model, str) else model
    match source:
        case ManifestSource():
            raise ModelError(f"`{source.name}` is a manifest: no model can be built from one")
        case FactorySource():
            return call_factory(source, choices)
        case ConfigSource():
            return instantiate(read_config(source, trust_remote_code), source.name, trust_remote_code, choices)
        case NamedSource():
            return instantiate(named_config(source, trust_remote_code), source.name, trust_remote_code, choices)


def build_manifest(
    model: nn.Module, name: str, *, trace: bool = True, as_if: torch.dtype | None = None
) -> ManifestFile:
    """The facts of `model`, called `name`. Reads shapes and attributes, never the values of a weight.

    A model on any device will do; parameters on the meta device get the dtype that loading would give them. Without
    `trace` no forward is watched, and the facts that only a forward shows are missing. With `as_if` they are the facts
    of the same model in that dtype.
    """
    config = getattr(model, "config", None)
    in_float32 = kept_in_float32(model, as_if)

    def dtype(full_name: str, parameter: nn.Parameter) -> str:
        if as_if is not None and parameter.is_floating_point() and parameter.itemsize > 1:
            return "float32" if in_float32(full_name) else plain(as_if)
        return "float32" if parameter.is_meta and in_float32(full_name) else plain(parameter.dtype)

    parameters = dict(model.named_parameters(remove_duplicate=False))
    file = ManifestFile(
        name=name,
        class_name=type(model).__name__,
        model_type=getattr(config, "model_type", None),
        base_model_prefix=getattr(model, "base_model_prefix", ""),
        dtype=plain(next((p.dtype for p in parameters.values() if p.is_floating_point()), torch.float32)),
        versions=versions(),
        config=config_fields(config),
        modules=module_entries(model, dtype),
        ties=tuple(_ties(model, parameters)),
        plans=Plans(
            **{kind: plain(getattr(model, f"_{kind}_plan", None) or {}) for kind in ("tp", "ep", "fsdp", "pp")}
        ),
        input_embeddings=_name_of(model, "get_input_embeddings"),
        output_embeddings=_name_of(model, "get_output_embeddings"),
        float32_modules=tuple(sorted({n.rpartition(".")[0] for n in map(generic_name, parameters) if in_float32(n)})),
        layers=_layers(model),
        quantization=quantization(config),
    )
    return _with_traced_facts(model, file) if trace else file


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what a model looks like, without local tags (`+cpu`)."""
    return {library.__name__: library.__version__.partition("+")[0] for library in (torch, transformers)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' warnings on token ids, missing kernels and the like: nothing is loaded or generated."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(before)


def _ties(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, str]]:
    """(tied parameter, the parameter it shares), as transformers declares them, then as tensors are shared."""
    declared: dict[str, str] = dict(getattr(model, "all_tied_weights_keys", None) or {})
    known = {tied: source for tied, source in declared.items() if tied in parameters and source in parameters}
    yield from known.items()
    sources = {id(parameters[source]): source for source in known.values()}
    for name, parameter in parameters.items():
        source = sources.setdefault(id(parameter), name)
        if source != name and name not in known:
            yield name, source


def _name_of(model: nn.Module, getter: str) -> str | None:
    """The name of the module that `model.<getter>()` returns, if it is one of the model's."""
    try:
        wanted = getattr(model, getter)()
    except (AttributeError, NotImplementedError):  # not every model has embeddings
        return None
    return next((name for name, module in model.named_modules() if module is wanted), None)


def _layers(model: nn.Module) -> str | None:
    """The list that pipeline stages are cut from, as `apply_pipeline_parallelism` of transformers 5.24.0 finds it."""
    name = f"{getattr(model, 'base_model_prefix', '')}.layers"
    return name if isinstance(dict(model.named_modules()).get(name), nn.ModuleList) else None


def _with_traced_facts(model: nn.Module, file: ManifestFile) -> ManifestFile:
    """`file` with what watching a small copy run adds; without, where that fails: those facts are unknown then."""
    try:
        from planc.model.building.tracing import trace_facts

        traced = trace_facts(model, file)
        return traced.model_copy(update={"flows": tuple(plain(flow) for flow in traced.flows)})
    except Exception as error:  # a copy of any model may fail in any way
        log.debug("no facts from a recorded run of %s: %r", file.name, error)
        return file
