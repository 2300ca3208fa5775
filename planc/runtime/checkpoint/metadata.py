"""Reading torch's distributed checkpoints without running what a stranger put into them.

DCP pickles its metadata and, in torch 2.13.0, unpickles it without restraint. Here nothing but the classes of that
metadata is made. Tensors are read by torch with `weights_only=True`.
"""

import pickle
from pathlib import Path, PurePath
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from planc.runtime.errors import CheckpointError

METADATA_NAME = ".metadata"
_METADATA = "torch.distributed.checkpoint.metadata"
_ALLOWED = {
    (_METADATA, "BytesStorageMetadata"),
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "Metadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "StorageMeta"),
    (_METADATA, "TensorProperties"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no metadata needs")


class Reader(FileSystemReader):
    """DCP's reader of a folder, with the metadata read safely."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = read_metadata(Path(self.path))
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def read_metadata(folder: Path) -> Metadata:
    """The metadata of the distributed checkpoint in `folder`. Raises `CheckpointError` that names the file."""
    path = folder / METADATA_NAME
    try:
        with path.open("rb") as file:
            metadata = _Unpickler(file).load()
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no distributed checkpoint: {path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    except Exception as error:  # damaged pickles raise whatever they like
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise CheckpointError(f"{path} is no metadata of a distributed checkpoint")
    for index, place in metadata.storage_data.items():
        if PurePath(place.relative_path).name != place.relative_path:
            raise CheckpointError(f"{path} has `{index.fqn}` in `{place.relative_path}`, outside of the folder")
        file_path = folder / place.relative_path
        if not file_path.is_file():
            raise CheckpointError(f"{file_path} is missing, with `{index.fqn}` in it")
        if place.offset + place.length > file_path.stat().st_size:
            raise CheckpointError(f"{file_path} is truncated: `{index.fqn}` ends at byte {place.offset + place.length}")
    return metadata


def shapes(metadata: Metadata) -> dict[str, tuple[int, ...]]:
    """The global shapes of the tensors in a checkpoint."""
    entries = metadata.state_dict_metadata.items()
    return {name: tuple(entry.size) for name, entry in entries if isinstance(entry, TensorStorageMetadata)}
