"""Where weights come from: tensors by name, of which any block can be read alone."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from planc.program.placements import Interval, Region
from planc.runtime.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
# An index is some hundred bytes a tensor; a larger one is not read into memory.
MAX_INDEX_BYTES = 256 * 1024 * 1024


class TensorSource(Protocol):
    """Tensors by name. `bytes_read` counts what was read so far, in the source's own dtypes."""

    bytes_read: int

    def __contains__(self, name: str) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of a tensor, without reading it."""

    def read(self, name: str, region: Region) -> Tensor:
        """The part of a tensor that `region` names, the pieces of each dim one after the other."""

    def where(self, name: str) -> str:
        """Where the tensor is, for messages."""


class SafetensorsFolder:
    """A checkpoint folder: `model.safetensors`, or the files that `model.safetensors.index.json` names.

    Files stay open (memory-mapped) until `close`. Raises `CheckpointError` that names the file for whatever is missing
    or damaged; pickled checkpoints are never read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_read = 0
        self._files: dict[str, Any] = {}
        self._stack = ExitStack()
        self._file_of = _file_names(folder)
        if self._file_of is None:
            opened = self._open(SINGLE_NAME)
            self._file_of = dict.fromkeys(opened.keys(), SINGLE_NAME)

    def __contains__(self, name: str) -> bool:
        return name in self._map

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    @property
    def _map(self) -> Mapping[str, str]:
        assert self._file_of is not None  # set by `__init__`
        return self._file_of

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in self._slice(name).get_shape())

    def read(self, name: str, region: Region) -> Tensor:
        source = self._slice(name)
        try:
            block = read_region(source, region.dims)
        except SafetensorError as error:
            raise CheckpointError(f"{self.where(name)}: {error}") from None
        self.bytes_read += block.numel() * block.element_size()
        return block

    def where(self, name: str) -> str:
        return f"{self.folder / self._map[name]}: `{name}`"

    def close(self) -> None:
        self._files.clear()
        self._stack.close()

    def _slice(self, name: str) -> Any:
        opened = self._open(self._map[name])
        try:
            return opened.get_slice(name)
        except SafetensorError:
            raise CheckpointError(f"{self.folder / self._map[name]} lacks the tensor `{name}` of the index") from None

    def _open(self, file: str) -> Any:
        if file not in self._files:
            path = self.folder / file
            if not path.is_file():
                raise CheckpointError(f"{path} is missing")
            try:
                self._files[file] = self._stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path} is damaged or truncated: {error}") from None
        return self._files[file]


class _Index(BaseModel):
    weight_map: dict[str, str]


def _file_names(folder: Path) -> dict[str, str] | None:
    """Tensor name to file name, as the folder's index says; None for a folder with the single file."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder")
    index = folder / INDEX_NAME
    if not index.is_file():
        if (folder / SINGLE_NAME).is_file():
            return None
        raise CheckpointError(f"{folder} holds neither {INDEX_NAME} nor {SINGLE_NAME}{_pickled(folder)}")
    if index.stat().st_size > MAX_INDEX_BYTES:
        raise CheckpointError(f"{index} is larger than {MAX_INDEX_BYTES} bytes")
    try:
        found = _Index.model_validate_json(index.read_bytes()).weight_map
    except ValidationError as error:
        raise CheckpointError(f"{index} is no index: {error.errors()[0]['msg']}") from None
    for file in set(found.values()):
        # An index is untrusted: it may only name files of its own folder.
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise CheckpointError(f"{index} names `{file}`, which is no safetensors file of this folder")
    return found


def _pickled(folder: Path) -> str:
    return "; pickled checkpoints (.bin) are not read" if any(folder.glob("*.bin")) else ""


def read_region(source: Any, dims: Sequence[Sequence[Interval]]) -> Tensor:
    """The product of the intervals in `dims`, of anything that is indexed by slices; read piece by piece."""
    for dim, pieces in enumerate(dims):
        if len(pieces) > 1:
            return torch.cat([read_region(source, [*dims[:dim], [p], *dims[dim + 1 :]]) for p in pieces], dim)
    if not dims:
        scalar: Tensor = source[...]
        return scalar
    # A rank that holds nothing reads one row and drops it, to learn the dtype.
    block: Tensor = source[tuple(slice(*(pieces[0] if pieces else (0, 1))) for pieces in dims)]
    return block[tuple(slice(None if pieces else 0) for pieces in dims)]


class RandomWeights:
    """Random weights that depend on the name alone, so that every layout of a model gets the same ones.

    Vectors are near 1 (most are weights of norms), everything else is normal with `std`. No initialisation that a
    training should start from: it is there to run a model without a checkpoint.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int = 0, std: float = 0.02) -> None:
        self.shapes, self.seed, self.std = shapes, seed, std
        self.bytes_read = 0

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def read(self, name: str, region: Region) -> Tensor:
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        shape = self.shapes[name]
        values = torch.randn(shape, generator=generator) * self.std
        return read_region(values + 1 if len(shape) == 1 else values, region.dims).clone()

    def where(self, name: str) -> str:
        return f"random weights: `{name}`"
