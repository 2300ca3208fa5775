"""Configs of well-known models with their manifests, by short name and by hub id. They need no torch."""

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@cache
def index() -> dict[str, tuple[str, ...]]:
    """Short name to hub ids, the first of which the config was taken from."""
    return {name: tuple(ids) for name, ids in json.loads((FOLDER / "index.json").read_bytes()).items()}


def short_name(model: str) -> str | None:
    """The short name of a bundled model, from its short name or one of its hub ids in any case; None without one."""
    wanted = model.casefold()
    for name, ids in index().items():
        if wanted == name or any(wanted == hub_id.casefold() for hub_id in ids):
            return name
    return None


def config_path(name: str) -> Path:
    """The `config.json` of a short name."""
    return FOLDER / "configs" / f"{name}.json"


def manifest_path(name: str) -> Path:
    """The manifest of a short name, as `python -m planc.model.building.bundle` writes it."""
    return FOLDER / "manifests" / f"{name}.json"
