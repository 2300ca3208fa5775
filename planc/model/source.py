"""What the word MODEL of the command line names. Finding out needs neither torch nor the network."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planc.model import bundled
from planc.model.errors import ModelError

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_HUB_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
_MOST_BYTES = 64 * 1024 * 1024
_MOST_LEVELS = 32
_FLOAT_TAG = "__float__"
_TAGGED_FLOATS = ("Infinity", "-Infinity", "NaN")


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """A manifest, as a file's content."""

    name: str
    content: bytes
    origin: str


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The fields of a `config.json`; `folder` is where its own code may lie, `bundled` its short name if it has one."""

    name: str
    fields: Mapping[str, Any]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    bundled: str | None = None


@dataclass(frozen=True, slots=True)
class FactorySource:
    """`package.module:factory`."""

    name: str
    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A transformers model type, or else a hub id that is not in the cache: transformers and the hub know."""

    name: str
    overrides: Mapping[str, Any] = field(default_factory=dict)


Source = ManifestSource | ConfigSource | FactorySource | NamedSource


def find_source(model: str, overrides: Mapping[str, Any] | None = None) -> Source:
    """What `model` names. Where it could be several things, in this order:

    1. an existing file (a manifest or a config), or a folder with a `config.json`;
    2. a bundled model, by its short name or its hub id;
    3. a transformers `model_type` (only names without `/`);
    4. `package.module:factory`;
    5. a hub id.

    Raises ModelError for a file that is none of these, and for a name that can't be any.
    """
    overrides = dict(overrides or {})
    if (path := _existing(model)) is not None:
        return _from_file(model, path, overrides)
    if (name := bundled.short_name(model)) is not None:
        return ConfigSource(model, read_json(bundled.config_path(name)), overrides, bundled=name)
    if _FACTORY.fullmatch(model):
        module, _, attribute = model.partition(":")
        return FactorySource(model, module, attribute)
    if not _HUB_ID.fullmatch(model) or ".." in model:
        raise ModelError(f"`{model}` is no file, model name, hub id or `package.module:factory`", _id_in_url(model))
    if (config := cached_config(model)) is not None and "/" in model:
        return ConfigSource(model, read_json(config), overrides, folder=str(config.parent))
    return NamedSource(model, overrides)


def _id_in_url(model: str) -> tuple[str, ...]:
    """What to write for the address of a model's page."""
    address = re.fullmatch(r"https?://(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:/.*)?", model)
    return (f"write `{address[1]}`",) if address else ()


def cached_config(hub_id: str) -> Path | None:
    """The `config.json` of a model in the hub's local cache (layout of huggingface_hub: `refs/main`, `snapshots/`)."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    folder = cache / f"models--{hub_id.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    config = folder / "snapshots" / revision / "config.json"
    return config if config.is_file() else None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises ModelError where it can't be read, or is something else."""
    return _parse(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ModelError(f"`{path}` is larger than {_MOST_BYTES >> 20} MiB: neither a config nor a manifest")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"can't read `{path}`: {error.strerror}") from None


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(content, object_hook=_tagged_float)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"`{path}` is not JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise ModelError(f"`{path}` holds a JSON {type(fields).__name__}, not the object of a config or a manifest")
    if (half := _half_a_character(fields)) is not None:
        raise ModelError(f"`{path}` has half of a surrogate pair in {half}, which is no character")
    if _deeper_than(fields, _MOST_LEVELS):
        raise ModelError(f"`{path}` is nested more than {_MOST_LEVELS} levels deep: neither a config nor a manifest")
    return fields


def _tagged_float(fields: dict[str, Any]) -> Any:
    """The number that transformers saves as `{"__float__": "Infinity"}`, for which JSON has no word; else `fields`.

    Source: `PreTrainedConfig._decode_special_floats` in `transformers/configuration_utils.py` (5.24.0).
    """
    text = fields.get(_FLOAT_TAG) if len(fields) == 1 else None
    return float(text) if isinstance(text, str) and text in _TAGGED_FLOATS else fields


def _half_a_character(fields: Mapping[str, Any]) -> str | None:
    """The first field (escaped) that can't be written as UTF-8, its key or what it holds; None if all can."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        for key, value in fields.items():
            try:
                json.dumps([key, value], ensure_ascii=False).encode()
            except UnicodeEncodeError:
                return f"`{key.encode(errors='backslashreplace').decode()}`"
    except (ValueError, RecursionError):  # too deep, which has a message of its own; numbers of too many digits
        return None
    return None


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            item for v in layer if isinstance(v, dict | list) for item in (v.values() if isinstance(v, dict) else v)
        ]
    return bool(layer)


def _existing(model: str) -> Path | None:
    """The file or folder that `model` names; a folder that only happens to bear a model's name doesn't count."""
    try:
        path = Path(model).expanduser()
        if path.is_file() or (path / "config.json").is_file():
            return path
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError, RuntimeError):  # a name too long, a NUL byte, no home folder
        return None
    if model.startswith((".", "/", "~")) or model.endswith(("/", ".json")):
        if is_folder:
            raise ModelError(f"the folder `{model}` has no `config.json`")
        if not exists:
            raise ModelError(f"there is no file or folder `{model}`")
    return None


def _from_file(model: str, path: Path, overrides: Mapping[str, Any]) -> Source:
    file = path / "config.json" if path.is_dir() else path
    content = _read(file)
    fields = _parse(content, file)
    if "modules" in fields and "class_name" in fields:
        if overrides:
            raise ModelError(f"`{model}` is a manifest: config fields can't be changed in it")
        return ManifestSource(model, content, str(file))
    return ConfigSource(model, fields, overrides, folder=str(file.parent))
