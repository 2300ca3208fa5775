"""Built manifests in the user's cache folder, by a hash of all that they depend on."""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from planc.model.errors import ModelError
from planc.model.manifest import Manifest
from planc.model.source import ConfigSource, NamedSource
from planc.model.versions import installed_version

_BUILDING = Path(__file__).parent / "building"


class Cache:
    """`$PLANC_CACHE_DIR`, else `$XDG_CACHE_HOME/planc`, else `~/.cache/planc`. It may be read-only."""

    def __init__(self) -> None:
        folder = os.environ.get("PLANC_CACHE_DIR")
        base = Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "planc")
        self.folder = base.expanduser() / "manifests"

    def get(self, source: ConfigSource | NamedSource) -> Manifest | None:
        """The manifest built for `source` by these versions; None where there is none or its file is damaged."""
        path = self._path(source)
        if path is None or not path.is_file():
            return None
        try:
            return Manifest.load(path)
        except ModelError:
            return None

    def put(self, source: ConfigSource | NamedSource, manifest: Manifest) -> None:
        """Keep `manifest`, replacing the file in one step, so that readers never see half of it."""
        path = self._path(source)
        if path is None:
            return
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".json")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(manifest.to_json())
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise

    def _path(self, source: ConfigSource | NamedSource) -> Path | None:
        builders = _builders()
        if builders is None:
            return None
        fields = source.fields if isinstance(source, ConfigSource) else {"model_type": source.name}
        content = json.dumps([builders, fields, source.overrides], sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(content.encode()).hexdigest()}.json"


@cache
def _builders() -> tuple[object, ...] | None:
    """All that turns a config into a manifest: library versions, and planc's builder (sizes and times of its files).

    None where a library is missing: nothing could be built, and nothing says which versions would fit.
    """
    versions = tuple(installed_version(name) for name in ("torch", "transformers"))
    if None in versions:
        return None
    files = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in _BUILDING.rglob("*.py"))
    return *versions, files
