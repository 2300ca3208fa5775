"""Modules that register styles or EP implementations when they are imported, as the user named them.

The command line names them (`--styles-module`), never a plan file. What a command starts, ranks and scripts, finds the
names in an environment variable and imports them, too.
"""

import os
import sys
from importlib import import_module

VARIABLE = "PLANC_STYLES_MODULES"


class StylesModuleError(Exception):
    """A module that can't be imported, and why; one sentence."""


def import_styles(name: str) -> None:
    """Import the module called `name`, also from the working directory, here and in what this process starts.

    Raises StylesModuleError.
    """
    _import(name)
    os.environ[VARIABLE] = ",".join(dict.fromkeys((*_named(), name)))


def import_named() -> None:
    """Import the modules that whoever started this process named. Raises StylesModuleError."""
    for name in _named():
        _import(name)


def _named() -> tuple[str, ...]:
    return tuple(name for name in os.environ.get(VARIABLE, "").split(",") if name)


def _import(name: str) -> None:
    if name in sys.modules:
        return
    if "" not in sys.path:
        # Last, so that no file there runs in the place of a library.
        sys.path.append("")
    try:
        import_module(name)
    except Exception as error:  # it is somebody else's code
        reason = f"{type(error).__name__}: {error}"
        raise StylesModuleError(f"can't import the styles module `{name}`: {reason}") from error
