"""An ordinary checkpoint of a sharded model, as a single process would have saved it, byte for byte.

Source: `PreTrainedModel.save_pretrained` of transformers 5.24.0. Rank 0 writes; it has one saved tensor in memory at
a time, the other ranks nothing but their shards.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from huggingface_hub import split_state_dict_into_shards_factory
from torch import Tensor, nn

from planc.program.placements import whole
from planc.runtime.apply import session
from planc.runtime.checkpoint.conversion import Made, from_model, is_of_transformers
from planc.runtime.checkpoint.distributed import WRITER, ShardedTensors
from planc.runtime.checkpoint.expressions import read_whole
from planc.runtime.checkpoint.index import INDEX_NAME, SINGLE_NAME
from planc.runtime.checkpoint.replacing import keep_others, prepare_beside, put_in_place
from planc.runtime.checkpoint.writing import header, open_for_writing, order, write_all, write_tensor
from planc.runtime.errors import CheckpointError
from planc.runtime.session import Session

# As transformers 5.24.0.
MAX_SHARD_SIZE = "50GB"
FILE_NAMES = "model{suffix}.safetensors"
METADATA = {"format": "pt"}

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Files:
    """What a checkpoint will hold: the tensors of each file, and the index, where there is more than one file."""

    tensors: Mapping[str, Mapping[str, Made]]
    index: Mapping[str, Any] | None


def save_pretrained(
    model: nn.Module, folder: Path, max_shard_size: int | str = MAX_SHARD_SIZE, progress: Progress | None = None
) -> None:
    """Save `model` as a checkpoint that transformers loads; every rank calls it.

    `max_shard_size` in bytes, or as `"5GB"`. The files are written beside `folder` and put in its place at the end;
    other files that are there already are kept. Raises `CheckpointError`, the same on every rank, where the model
    can't be saved or rank 0 can't write; `folder` is then as it was.
    """
    with session() if Session.current is not None else nullcontext():
        _refuse(model)
        tensors = ShardedTensors(saved_tensors(model), frozenset(name for name, _ in model.named_parameters()))
        files = plan_files(model, tensors, max_shard_size)
        writer = _Writer(folder) if tensors.is_writer else None
        if writer is not None:
            writer.attempt("", writer.prepare)
        _write_files(files, tensors, writer, progress)
        if writer is not None:
            writer.attempt(INDEX_NAME if files.index is not None else "", lambda: writer.finish(model, files))
        failure = _failure(writer)
    # Not within the session, which would end the run: whoever trains may want to go on without this checkpoint.
    if failure is not None:
        raise CheckpointError(failure)


def _refuse(model: Any) -> None:
    if getattr(model, "hf_quantizer", None) is not None:
        raise CheckpointError("quantised models are not saved: their quantizer would have to write the tensors")
    if getattr(model, "_hf_peft_config_loaded", False):
        raise CheckpointError("models with adapters are not saved: `save_pretrained` of the model itself does it")


def saved_tensors(model: Any) -> dict[str, Tensor]:
    """The tensors of this rank that go into a checkpoint, sharded as they are; of tied ones the one that is kept."""
    state = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    for name in getattr(model, "_keys_to_ignore_on_save", None) or ():
        state.pop(name, None)
    if not is_of_transformers(model):
        # As `safetensors.torch.save_model`: of several names of one tensor the first.
        first: dict[int, str] = {}
        own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        return {name: t for name, t in state.items() if first.setdefault(id(own.get(name, t)), name) == name}
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    shapes: dict[str, Any] = {name: torch.empty(tensor.shape, device="meta") for name, tensor in state.items()}
    kept = remove_tied_weights_from_state_dict(shapes, model)
    return {name: state[name] for name in kept}


def gather_on_writer(model: Any, state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """All of `state_dict` of a sharded model on the CPU of rank 0, nothing on other ranks; every rank calls it.

    Of tied weights the one that is saved.
    """
    saved, known = saved_tensors(model), model.state_dict().keys()
    kept = {name: value for name, value in state_dict.items() if name in saved or name not in known}
    tensors = ShardedTensors({name: value for name, value in kept.items() if isinstance(value, Tensor)})
    gathered: dict[str, Any] = {}
    for name in tensors.shares:
        tensor = tensors.read(name, whole(tensors.share(name).shape))
        if tensors.is_writer:
            gathered[name] = tensor
    return {**kept, **gathered} if tensors.is_writer else {}


def plan_files(model: Any, tensors: ShardedTensors, max_shard_size: int | str) -> Files:
    """Which tensors go into which files, without moving any."""
    stored = {name: (tensors.share(name).shape, tensors.share(name).dtype) for name in tensors.shares}
    made = from_model(model, stored)
    # Views that share a storage stay together, and count once: as `split_torch_state_dict_into_shards`.
    split = split_state_dict_into_shards_factory(
        dict(made),
        get_storage_size=lambda tensor: int(tensor.meta.untyped_storage().nbytes()),
        get_storage_id=lambda tensor: tensor.meta.untyped_storage()._cdata,
        filename_pattern=FILE_NAMES,
        max_shard_size=max_shard_size,
    )
    files = {file: {name: made[name] for name in names} for file, names in split.filename_to_tensors.items()}
    if not split.is_sharded:
        return Files(files, None)
    shares = (tensors.share(name) for name in tensors.shares)
    count = sum(torch.Size(share.shape).numel() for share in shares if share.is_parameter)
    metadata = {"total_parameters": count, **split.metadata}
    return Files(files, {"metadata": metadata, "weight_map": split.tensor_to_filename})


def _write_files(files: Files, tensors: ShardedTensors, writer: "_Writer | None", progress: Progress | None) -> None:
    """Gather and write tensor after tensor. After a failure at the latest the next file isn't sent any more."""
    count, done = sum(map(len, files.tensors.values())), 0
    for file, content in files.tensors.items():
        layout = {name: (made.shape, made.dtype) for name, made in content.items()}
        if writer is not None:
            writer.attempt(file, partial(writer.begin, file, header(layout, METADATA)))
        for name in order(layout):
            tensor = read_whole(content[name].expression, tensors.read)
            if writer is not None:
                writer.attempt(f"{file}: `{name}`", partial(writer.add, tensor))
            del tensor
            done += 1
            if progress is not None and tensors.is_writer:
                progress(done, count)
        if _failure(writer) is not None:
            return


class _Writer:
    """What rank 0 does. After the first failure it does nothing more, so that it goes on to receive what is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failure: str | None = None
        self._beside: Path | None = None
        self._file: Any = None

    def attempt(self, what: str, action: Callable[[], None]) -> None:
        """Do it, unless something failed before; `what` is the file, and the tensor, for the message."""
        if self.failure is not None:
            return
        try:
            action()
        except OSError as error:
            place = f"{self.folder}/{what}" if what else str(self.folder)
            self.failure = f"can't save {place}: {error.strerror or error}"
            self._clean_up()
        except Exception as error:
            self.failure = f"can't save {self.folder}: {type(error).__name__}: {error}"
            self._clean_up()

    def prepare(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(0, "there is a file of that name")
        self._beside = prepare_beside(self.folder)

    def begin(self, file: str, first_bytes: bytes) -> None:
        self._close()
        assert self._beside is not None  # `prepare` made it
        self._file = open_for_writing(self._beside / file)
        write_all(self._file, first_bytes)

    def add(self, tensor: Tensor) -> None:
        write_tensor(self._file, tensor)

    def finish(self, model: nn.Module, files: Files) -> None:
        """Write everything but the weights, and put the folder in its place."""
        self._close()
        assert self._beside is not None  # `prepare` made it
        if files.index is not None:
            text = json.dumps(files.index, indent=2, sort_keys=True) + "\n"
            (self._beside / INDEX_NAME).write_text(text, encoding="utf-8")
        save_configs(model, self._beside)
        keep_others(self.folder, self._beside, weight_files(self.folder))
        put_in_place(self._beside, self.folder)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _clean_up(self) -> None:
        with suppress(OSError):
            self._close()
        if self._beside is not None:
            import shutil

            shutil.rmtree(self._beside, ignore_errors=True)


def weight_files(folder: Path) -> Sequence[str]:
    """The weights of an earlier save: files that the new ones take the place of."""
    if not folder.is_dir():
        return ()
    found = [path.name for path in folder.glob("model-[0-9]*-of-[0-9]*.safetensors")]
    return (*found, SINGLE_NAME, INDEX_NAME)


def save_configs(model: Any, folder: Path) -> None:
    """`config.json`, `generation_config.json`, and the code of a model that brings its own."""
    if not is_of_transformers(model):
        return
    config = model.config
    config.dtype = str(model.dtype).removeprefix("torch.")
    # `fully_shard` prefixes the class name.
    config.architectures = [type(model).__name__.removeprefix("FSDP")]
    if model.is_remote_code():
        from transformers.dynamic_module_utils import custom_object_save

        custom_object_save(model, folder, config=config)
    config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)


def _failure(writer: _Writer | None) -> str | None:
    """What rank 0 failed at, on every rank."""
    told = [writer.failure if writer is not None else None]
    if dist.is_initialized():
        dist.broadcast_object_list(told, src=WRITER)
    return told[0]


def stderr_progress(done: int, count: int) -> None:
    """For people who watch rank 0."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rsaving: {done} of {count} tensors" + ("\n" if done == count else ""))
