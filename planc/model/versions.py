"""Versions of installed libraries, found without importing them or `importlib.metadata`, which takes 30 ms."""

import os
import sys
from functools import cache


@cache
def installed_version(library: str) -> str | None:
    """The version of `library` (`2.13.0+cpu`), or None where it isn't installed.

    A wheel's metadata lies in `library-version.dist-info` (PEP 376, PEP 427) beside the package. Only where no such
    folder is on the path, `importlib.metadata` is asked: it knows other kinds of installation, too.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{library}-") and name.endswith(".dist-info"):
                return name.removeprefix(f"{library}-").removesuffix(".dist-info")
    return _by_metadata(library)


def _by_metadata(library: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
