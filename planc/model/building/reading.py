"""From sources to what is to be built: configs, the hub's included, and modules of the user's own factories."""

import contextlib
import difflib
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from torch import nn
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model import bundled
from planc.model.building.choosing import put_on
from planc.model.building.configs import build_config, first_line, remote_config
from planc.model.building.instantiate import instantiate, on_meta
from planc.model.choices import Choices
from planc.model.errors import ModelError
from planc.model.source import ConfigSource, FactorySource, NamedSource, cached_config, find_source, read_json


def read_config(source: ConfigSource, trust_remote_code: bool) -> PreTrainedConfig:
    """The config of a `config.json`, with `source.overrides`.

    As in transformers, code that the model brings along (`auto_map`) comes first where it is trusted; without trust it
    never runs. Raises ModelError.
    """
    if "auto_map" in source.fields:
        if trust_remote_code:
            return remote_config(source.folder or source.name, source.overrides)
        if source.fields.get("model_type") not in CONFIG_MAPPING:
            raise ModelError(
                f"`{source.name}` needs code of its own, which transformers does not have",
                ("if you trust that code, allow it with --trust-remote-code",),
            )
    return build_config(source.fields, source.overrides, name=source.name)


def named_config(source: NamedSource, trust_remote_code: bool) -> PreTrainedConfig:
    """The default config of a model type, or the hub's config of a hub id. Raises ModelError."""
    if source.name in CONFIG_MAPPING:
        return build_config({"model_type": source.name}, source.overrides, name=source.name)
    path = cached_config(source.name) or _download(source.name)
    return read_config(
        ConfigSource(source.name, read_json(path), source.overrides, folder=str(path.parent)), trust_remote_code
    )


def config_names_dtype(model: str) -> bool:
    """Whether transformers takes the dtype of `model` from its config; else a checkpoint decides. Raises ModelError.

    Source: `_get_dtype` in `transformers/modeling_utils.py` (5.24.0). What a factory makes has its dtype already.
    """
    match find_source(model):
        case ConfigSource() as source:
            return read_config(source, trust_remote_code=False).dtype is not None
        case NamedSource() as source:
            return named_config(source, trust_remote_code=False).dtype is not None
        case _:
            return True


def call_factory(source: FactorySource, choices: Choices | None = None) -> nn.Module:
    """What the user's factory makes under the meta device: a module, or a transformers config to build from.

    A module that is made already gets the dtype and the implementations of `choices` afterwards.
    Imports the module that the user named, also from the current folder. Raises ModelError.
    """
    with _current_folder_importable():
        try:
            target: Any = importlib.import_module(source.module)
            for attribute in source.attribute.split("."):
                target = getattr(target, attribute)
        except Exception as error:  # importing runs the user's code
            raise ModelError(f"can't import `{source.name}`: {type(error).__name__}: {first_line(error)}") from error
        try:
            made: object = target if isinstance(target, nn.Module | PreTrainedConfig) else on_meta(target)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"`{source.name}` raised {type(error).__name__}: {first_line(error)}") from error
    if isinstance(made, PreTrainedConfig):
        return instantiate(made, source.name, choices=choices)
    if not isinstance(made, nn.Module):
        raise ModelError(f"`{source.name}` returned a {type(made).__name__}, not a torch.nn.Module")
    if choices is not None:
        put_on(made, choices)
    return made


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def _download(name: str) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    reason = "it is not in the local cache, and the hub can't be reached"
    if _reachable(constants.ENDPOINT):
        try:
            return Path(hf_hub_download(name, "config.json", etag_timeout=5))
        except LocalEntryNotFoundError:
            pass
        except GatedRepoError:
            reason = "its repository is gated, and you are not logged in to an account that may read it"
        except RepositoryNotFoundError:
            reason = "the hub has no such model, or none that you may read"
        except EntryNotFoundError:
            reason = "its repository has no config.json"
        except Exception as error:  # a broken proxy, a full disk: the hub's client raises all kinds
            reason = f"reading its config.json from the hub failed: {first_line(error)}"
    raise ModelError(f"no model `{name}`: {reason}", _nearest(name))


def _reachable(endpoint: str) -> bool:
    """Whether it is worth asking the hub: its client retries for half a minute where there is no network."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    url = urlsplit(endpoint)
    if getproxies() or url.hostname is None:
        return True
    try:
        socket.create_connection((url.hostname, url.port or 443), timeout=3).close()
    except OSError:
        return False
    return True


def _nearest(name: str) -> tuple[str, ...]:
    known = [*bundled.index(), *(i for ids in bundled.index().values() for i in ids), *CONFIG_MAPPING.keys()]
    by_folded = {k.casefold(): k for k in known}
    near = difflib.get_close_matches(name.casefold(), list(by_folded), n=3, cutoff=0.5)
    names = " or ".join(f"`{by_folded[n]}`" for n in near)
    return (f"did you mean {names}?",) if near else (f"bundled models: {', '.join(bundled.index())}",)
