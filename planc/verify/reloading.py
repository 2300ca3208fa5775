"""Save the sharded copy with the runtime's own writer, load it in one process, and compare bit for bit."""

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planc.diagnostics.diagnostic import Diagnostic
from planc.runtime.checkpoint.saving import save_pretrained
from planc.runtime.loading import load_weights
from planc.runtime.pretrained import weights
from planc.verify import codes
from planc.verify.applying import Application
from planc.verify.comparing import Departure, compare
from planc.verify.trial import Laboratory, Stopped

_NAMED = 4
# The tensors of a checkpoint, read into a model like the one given.
_Reader = Callable[[nn.Module, Path], Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Saved:
    """What saving and reloading gave: `readers` gave back what was saved. `lost` where a rank didn't end."""

    readers: tuple[str, ...] = ()
    finding: Diagnostic | None = None
    lost: Stopped | None = None


def save_and_reload(laboratory: Laboratory, application: Application) -> Saved:
    """Let the ranks save the copy, and read what they wrote.

    A reader to which the whole copy, saved by one process, doesn't come back either says nothing about the plan: it
    isn't among the `readers`.
    """
    with tempfile.TemporaryDirectory(prefix="planc-verify-") as name:
        folder, whole = Path(name) / "sharded", Path(name) / "whole"
        stopped = laboratory.save(application, folder)
        if stopped is not None:
            return _not_saved(laboratory.model, stopped, whole)
        good: list[str] = []
        for reader, read in _READERS.items():
            found = _read(laboratory.model, folder, read)
            if not found:
                good.append(reader)
            elif own := _beyond(found, _whole(laboratory.model, whole, read)):
                return Saved(tuple(good), _finding(reader, own))
    return Saved(tuple(good))


def _not_saved(model: nn.Module, stopped: Stopped, folder: Path) -> Saved:
    if stopped.lost:
        return Saved(lost=stopped)
    try:
        save_pretrained(copy.deepcopy(model), folder)
    except Exception:  # nor can the whole copy be saved
        return Saved()
    said = (stopped.error.splitlines() or [""])[0]
    return Saved(finding=codes.WrongCheckpoint.code.found(f"the sharded copy can't be saved: {said}"))


def _whole(model: nn.Module, folder: Path, read: _Reader) -> tuple[Departure, ...] | str:
    """What departs where one process saved the whole copy, as transformers does it."""
    saving: Any = copy.deepcopy(model)
    try:
        saving.save_pretrained(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return _read(model, folder, read)


def _beyond(found: tuple[Departure, ...] | str, whole: tuple[Departure, ...] | str) -> tuple[Departure, ...] | str:
    """What the whole copy doesn't lose as well; nothing where it can't be loaded either."""
    if isinstance(whole, str) or isinstance(found, str):
        return () if isinstance(whole, str) else found
    names = {departure.name for departure in whole}
    return tuple(departure for departure in found if departure.name not in names)


def _read(model: nn.Module, folder: Path, read: _Reader) -> tuple[Departure, ...] | str:
    """What departs from `model` in what was read, or why it can't be read."""
    try:
        return tuple(_departures(model.state_dict(), read(model, folder)))
    except Exception as error:  # whatever a reader says of the files is what we are here to see
        return f"{type(error).__name__}: {error}".replace(str(folder), "the checkpoint")


def _departures(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Iterator[Departure]:
    for name, tensor in expected.items():
        own = found.get(name)
        # transformers reads some parameters, such as those of routers, in single precision.
        right = tensor.to(own.dtype) if own is not None else tensor
        yield from compare("saved", name, 0, right.double(), own.double() if own is not None else None, 0.0)


def _by_transformers(model: nn.Module, folder: Path) -> Mapping[str, Tensor]:
    cls: Any = type(model)
    state: Mapping[str, Tensor] = cls.from_pretrained(folder, dtype=torch.float64, local_files_only=True).state_dict()
    return state


def _by_planc(model: nn.Module, folder: Path) -> Mapping[str, Tensor]:
    own = copy.deepcopy(model)
    for tensor in own.state_dict().values():
        # What isn't read must not agree by having been there before.
        tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
    load_weights(own, weights(own, folder, seed=0), torch.device("cpu"))
    return own.state_dict()


_READERS: Mapping[str, _Reader] = {"transformers": _by_transformers, "planc": _by_planc}


def _finding(reader: str, found: tuple[Departure, ...] | str) -> Diagnostic:
    code = codes.WrongCheckpoint.code
    if isinstance(found, str):
        said = (found.splitlines() or [""])[0]
        return code.found(f"{reader} can't load what the ranks saved of the copy: {said}")
    names = tuple(departure.name for departure in found)
    listed = ", ".join(f"`{name}`" for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return code.found(
        f"what the ranks saved of the copy, loaded by {reader}, has other values of {listed}{more}",
        targets=names[:_NAMED],
        target_count=len(names),
        notes=tuple(map(_note, found[:_NAMED])),
    )


def _note(departure: Departure) -> str:
    if departure.shape is not None:
        return f"`{departure.name}` is {'x'.join(map(str, departure.shape)) or 'missing'}"
    return f"`{departure.name}`: largest difference {departure.error:.3g}, largest element {departure.scale:.3g}"
