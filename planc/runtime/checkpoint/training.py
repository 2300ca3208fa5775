"""Training state: parameters, optimizer and step count, saved at one layout and resumed at any other.

The folder is a distributed checkpoint of torch (DCP) and a JSON file for what isn't a tensor. Optimizer states go by
the names of their parameters, as torch's `flatten_optimizer_state_dict` writes them, so that neither the layout nor
the grouping of parameters matters.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import BaseModel, ValidationError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from planc.runtime.apply import session
from planc.runtime.checkpoint.distributed import WRITER
from planc.runtime.checkpoint.metadata import Reader, read_metadata, shapes
from planc.runtime.checkpoint.pieces import Pieces
from planc.runtime.checkpoint.replacing import prepare_beside, put_in_place
from planc.runtime.checkpoint.saving import saved_tensors
from planc.runtime.errors import CheckpointError
from planc.runtime.session import Session

SCALARS_NAME = "training.json"
MODEL, OPTIMIZER = "model.", "optimizer."
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
LISTED = 5


class _Scalars(BaseModel):
    """What isn't a tensor. `optimizer` has the groups' options by parameter."""

    format_version: int = 1
    step: int
    optimizer: dict[str, Any]


def save_training(model: nn.Module, optimizer: torch.optim.Optimizer | None, folder: str | Path, step: int = 0) -> None:
    """Save what a training needs to go on; every rank calls it, with a `folder` that all of them see.

    Written beside `folder` and put in its place at the end. Raises `CheckpointError`, the same on every rank.
    """
    target = Path(folder)
    with session() if Session.current is not None else nullcontext():
        tensors, scalars = _state(model, optimizer)
        beside = Path(_on_writer(target, lambda: str(prepare_beside(target))))
        failure = _try(target, lambda: _write(tensors, beside))
        failure = failure or _try(target, lambda: _finish(_Scalars(step=step, optimizer=scalars), beside, target))
        if failure is not None and _is_writer():
            shutil.rmtree(beside, ignore_errors=True)
    if failure is not None:
        raise CheckpointError(failure)


def load_training(model: nn.Module, optimizer: torch.optim.Optimizer | None, folder: str | Path) -> int:
    """Load what `save_training` saved, at any layout, into `model` and `optimizer`; returns the step count.

    The model must hold values (those of any initialisation). Each rank reads what it holds. Raises `CheckpointError`,
    the same on every rank, before anything is changed where a tensor is missing, superfluous, or of another shape.
    """
    source = Path(folder)
    with session() if Session.current is not None else nullcontext():
        scalars: _Scalars = _agreed(lambda: _read_scalars(source))
        tensors, own = _state(model, optimizer)
        everywhere = {name for names in _everywhere(list(tensors)) for name in names}
        _agreed(lambda: _refuse(source, tensors, everywhere, own, scalars))
        if failure := _try(source, lambda: _read(tensors, source)):
            raise CheckpointError(failure)
        if optimizer is not None:
            flat: dict[str, Any] = {
                name.removeprefix(OPTIMIZER): t for name, t in tensors.items() if name.startswith(OPTIMIZER)
            }
            options = {name: _like(own[name], scalars.optimizer[name]) for name in own}
            set_optimizer_state_dict(model, optimizer, {**flat, **options}, options=FLAT)
    return scalars.step


def _state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors of this rank by name, and the optimizer's options."""
    tensors = {MODEL + name: tensor for name, tensor in saved_tensors(model).items()}
    scalars: dict[str, Any] = {}
    if optimizer is not None:
        for name, value in get_optimizer_state_dict(model, optimizer, options=FLAT).items():
            if isinstance(value, Tensor):
                tensors[OPTIMIZER + name] = value
            else:
                scalars[name] = value
    return tensors, scalars


def _write(tensors: Mapping[str, Tensor], folder: Path) -> None:
    writer = FileSystemWriter(folder)
    with _quiet():
        save({n: Pieces(t) for n, t in tensors.items()}, storage_writer=writer, no_dist=not dist.is_initialized())


def _read(tensors: Mapping[str, Tensor], folder: Path) -> None:
    state: dict[str, Any] = {name: Pieces(tensor) for name, tensor in tensors.items()}
    with _quiet():
        load(state, storage_reader=Reader(folder), no_dist=not dist.is_initialized())


@contextmanager
def _quiet() -> Iterator[None]:
    """DCP warns of a single process even where it was told."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _finish(scalars: _Scalars, beside: Path, folder: Path) -> None:
    gathered: list[dict[str, Any]] = [scalars.optimizer]
    if dist.is_initialized():
        gathered = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(gathered, scalars.optimizer)
    if _is_writer():
        # With pipeline stages each rank has the options of its own parameters.
        merged = {name: value for options in gathered for name, value in options.items()}
        text = scalars.model_copy(update={"optimizer": merged}).model_dump_json(indent=1)
        (beside / SCALARS_NAME).write_text(text)
        put_in_place(beside, folder)


def _read_scalars(folder: Path) -> _Scalars:
    path = folder / SCALARS_NAME
    try:
        return _Scalars.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no training state: {path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    except ValidationError as error:
        raise CheckpointError(f"{path} is damaged: {error.errors()[0]['msg']}") from None


def _refuse(
    folder: Path,
    tensors: Mapping[str, Tensor],
    everywhere: Set[str],
    options: Mapping[str, Any],
    scalars: _Scalars,
) -> None:
    """`tensors` and `options` are this rank's, `everywhere` names the tensors of all ranks."""
    stored = shapes(read_metadata(folder))
    wanted = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    kind = "the tensor"
    missing = sorted(set(wanted) - set(stored))
    if not missing:
        kind, missing = "the option", sorted(set(options) - set(scalars.optimizer))
    if missing:
        raise CheckpointError(f"{folder} lacks {kind} {_listed(missing)}")
    for name, shape in wanted.items():
        if stored[name] != shape:
            raise CheckpointError(f"{folder}: `{name}` has shape {list(stored[name])}, the model {list(shape)}")
    surplus = set(stored) - everywhere
    if not any(name.startswith(OPTIMIZER) for name in wanted):
        surplus = {name for name in surplus if not name.startswith(OPTIMIZER)}
    if surplus:
        raise CheckpointError(f"{folder} holds {_listed(sorted(surplus))}, which the model has no place for")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:LISTED]) + more


def _like(own: Any, value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(own, tuple) and isinstance(value, list) else value


def _is_writer() -> bool:
    return not dist.is_initialized() or dist.get_rank() == WRITER


def _try(folder: Path, action: Callable[[], None]) -> str | None:
    """Do it on every rank; what failed, in the same words on all of them."""
    failure = None
    try:
        action()
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items())
        failure = f"{folder}: rank {rank}: {_words(cause)}"
    except OSError as error:
        failure = f"{folder}: {_words(error)}"
    return next((told for told in _everywhere(failure) if told is not None), None)


def _words(error: BaseException) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _agreed(action: Callable[[], Any]) -> Any:
    """What `action` gives; where it fails on a rank, the same `CheckpointError` on every rank."""
    result, failure = None, None
    try:
        result = action()
    except CheckpointError as error:
        failure = str(error)
    if told := next((told for told in _everywhere(failure) if told is not None), None):
        raise CheckpointError(told)
    return result


def _on_writer(folder: Path, action: Callable[[], Any]) -> Any:
    """What `action` gives on rank 0, on every rank."""
    told: list[Any] = [None, None]
    if _is_writer():
        try:
            told[0] = action()
        except OSError as error:
            told[1] = f"{folder}: {_words(error)}"
    if dist.is_initialized():
        dist.broadcast_object_list(told, src=WRITER)
    if told[1] is not None:
        raise CheckpointError(told[1])
    return told[0]


def _everywhere(value: Any) -> list[Any]:
    if not dist.is_initialized():
        return [value]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered
