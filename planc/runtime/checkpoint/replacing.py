"""A folder that is replaced as a whole: whoever looks at it finds the old content or the new, at any moment."""

import ctypes
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def prepare_beside(folder: Path) -> Path:
    """An empty folder beside `folder`, to be filled and then put in its place; what a killed save left is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = folder.parent / f".{folder.name}.planc-saving"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    return beside


def keep_others(folder: Path, beside: Path, replaced: Iterable[str]) -> None:
    """Give `beside` what `folder` holds, but for what it has itself and the names in `replaced`."""
    dropped = set(replaced)
    for entry in folder.iterdir() if folder.is_dir() else ():
        target = beside / entry.name
        if entry.name in dropped or target.exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True, copy_function=_link_or_copy)
        else:
            _link_or_copy(str(entry), str(target))


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def put_in_place(beside: Path, folder: Path) -> None:
    """Make `beside` the folder `folder`; the old content is removed afterwards."""
    for path in (*beside.rglob("*"), beside):
        _sync(path)
    if not folder.exists():
        beside.rename(folder)
    elif _exchange(beside, folder):
        shutil.rmtree(beside, ignore_errors=True)
    else:
        old = folder.parent / f".{folder.name}.planc-old"
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        beside.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    _sync(folder.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; False where the system can't. No library of Python's offers it."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    result: int = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return result == 0


def _sync(path: Path) -> None:
    if path.is_symlink():
        return
    with suppress(OSError):  # some file systems can't sync folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
