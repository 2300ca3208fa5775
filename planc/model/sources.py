"""Manifests of models in every form that MODEL may take."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from planc.model import bundled
from planc.model.cache import Cache
from planc.model.dataflow import Flow
from planc.model.errors import ModelError
from planc.model.manifest import Manifest
from planc.model.source import (
    ConfigSource,
    FactorySource,
    ManifestSource,
    NamedSource,
    Source,
    cached_config,
    find_source,
)
from planc.model.versions import installed_version


def load_manifest(
    model: str,
    *,
    config: Mapping[str, Any] | None = None,
    cache: bool = True,
    trust_remote_code: bool = False,
    factories: bool = True,
    dtype: str | None = None,
) -> Manifest:
    """The manifest of `model` (its forms and their precedence: `planc.model.source.find_source`).

    `config` are fields to put over those of the model's config. With `cache`, a manifest built once is read from the
    user's cache from then on; a factory's never is, since its code may change. Code that a model brings along runs
    only with `trust_remote_code`; `package.module:factory` only with `factories`. `dtype` goes before the config's;
    what a factory makes keeps its own. Raises ModelError.
    """
    source = find_source(model, config)
    if isinstance(source, FactorySource) and not factories:
        raise ModelError(
            f"`{model}` is code, and a plan file can't have code run",
            (f"name it on the command line, before the plan: `planc check {model} PLAN`",),
        )
    # What foreign code makes of a config isn't decided by the config alone.
    kept = Cache() if cache and not trust_remote_code else None
    manifest = _without_building(source, kept) or _build(source, kept, trust_remote_code)
    if dtype not in (None, manifest.file.dtype) and isinstance(source, ConfigSource | NamedSource):
        source = replace(source, overrides={**source.overrides, "dtype": dtype})
        manifest = _without_building(source, kept) or _build(source, kept, trust_remote_code)
    return manifest.renamed(source.name)


def _without_building(source: Source, cache: Cache | None) -> Manifest | None:
    if isinstance(source, ManifestSource):
        return _verified(Manifest.from_json(source.content, source.origin), source.origin)
    if isinstance(source, ConfigSource) and source.bundled and not source.overrides:
        path = bundled.manifest_path(source.bundled)
        manifest = Manifest.load(path) if path.exists() else None
        if manifest is not None and _is_current(manifest):
            return manifest
    if cache is not None and _cacheable(source):
        return cache.get(source)
    return None


def _verified(manifest: Manifest, origin: str) -> Manifest:
    """The manifest of somebody else, after its recorded dataflows were read: what is behind relies on them."""
    for recorded in manifest.file.flows:
        try:
            _verify_parameters(Flow.from_json(recorded), manifest)
        except ValueError as error:
            raise ModelError(f"`{origin}` is not a manifest: in its dataflow, {error}") from None
    return manifest


def _verify_parameters(flow: Flow, manifest: Manifest) -> None:
    """Raises ValueError where a recorded parameter has other dims than the manifest says."""
    for value, source in flow.sources.items():
        known = manifest.parameters.get(source.removeprefix("parameter:")) if source.startswith("parameter:") else None
        if known is not None and len(known[1].shape) != len(flow.shapes[value]):
            raise ValueError(f"`{source}` has {len(flow.shapes[value])} dims, and the parameter {len(known[1].shape)}")


def _build(source: Source, cache: Cache | None, trust_remote_code: bool) -> Manifest:
    try:
        from planc.model.building import builder
    except ImportError as error:
        raise ModelError(
            f"no manifest of `{source.name}` is at hand, and building one needs {error.name or 'torch'}",
            ("install it: pip install 'planc[runtime]'", f"bundled models need none: {', '.join(bundled.index())}"),
        ) from None
    manifest = Manifest(builder.build(source, trust_remote_code=trust_remote_code))
    if cache is not None and _cacheable(source):
        cache.put(source, manifest)
    return manifest


def _cacheable(source: Source) -> TypeGuard[ConfigSource | NamedSource]:
    """Whether the source's content decides the manifest: a factory's code may change, and so may the hub's files."""
    if isinstance(source, NamedSource):
        return "/" not in source.name and cached_config(source.name) is None
    return isinstance(source, ConfigSource)


def _is_current(manifest: Manifest) -> bool:
    """Whether nothing better can be built here: torch is missing, or transformers has the manifest's version."""
    version = installed_version("transformers")
    if version is None or installed_version("torch") is None:
        return True
    return version == manifest.file.versions.get("transformers")
