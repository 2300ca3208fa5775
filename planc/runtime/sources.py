"""Where weights come from: tensors by name, of which any block can be read alone."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from planc.model.choices import DTYPES as PLAIN_FLOATS
from planc.program.placements import Interval, Region
from planc.runtime.checkpoint.dtypes import DTYPES
from planc.runtime.checkpoint.headers import Header, read_header
from planc.runtime.checkpoint.index import SINGLE_NAME, read_index
from planc.runtime.errors import CheckpointError

# Pages of a mapped file count as memory of the process: a file is let go once so much of it may have been touched.
MAPPED_BYTES = 32 * 1024 * 1024


class TensorSource(Protocol):
    """Tensors by name. `bytes_read` counts what was read so far, in the source's own dtypes."""

    bytes_read: int

    def __contains__(self, name: str) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of a tensor, without reading it."""

    def dtype(self, name: str) -> torch.dtype:
        """The dtype in which a tensor is stored, without reading it."""

    def read(self, name: str, region: Region) -> Tensor:
        """The part of a tensor that `region` names, the pieces of each dim one after the other."""

    def where(self, name: str) -> str:
        """Where the tensor is, for messages."""


class SafetensorsFolder:
    """A checkpoint folder: `model.safetensors`, or the files that `model.safetensors.index.json` names.

    All headers are read and validated first. A file is mapped into memory when a tensor of it is read. Raises
    `CheckpointError` that names the file for whatever is missing or damaged; pickled checkpoints are never read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_read = 0
        self._headers = read_headers(folder)
        self._file_of = {name: header for header in self._headers.values() for name in header.tensors}
        self._open: tuple[Path, Any, ExitStack] | None = None
        self._mapped = 0

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file_of[name].tensors[name].shape

    def dtype(self, name: str) -> torch.dtype:
        stored = self._file_of[name].tensors[name].dtype
        if stored not in DTYPES:
            raise CheckpointError(f"{self.where(name)} has the dtype {stored}, which torch doesn't know")
        return DTYPES[stored]

    def read(self, name: str, region: Region) -> Tensor:
        if region.count == 0:
            return torch.empty(region.shape, dtype=self.dtype(name))
        try:
            block = read_region(self._file(self._file_of[name].path).get_slice(name), region.dims)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{self.where(name)}: {error}") from None
        self.bytes_read += block.numel() * block.element_size()
        # A block of columns touches every page of its tensor.
        self._mapped += self._file_of[name].tensors[name].size
        return block

    def where(self, name: str) -> str:
        return f"{self._file_of[name].path}: `{name}`"

    def close(self) -> None:
        if self._open is not None:
            self._open[2].close()
        self._open, self._mapped = None, 0

    def _file(self, path: Path) -> Any:
        if self._open is None or self._open[0] != path or self._mapped > MAPPED_BYTES:
            self.close()
            stack = ExitStack()
            self._open = path, stack.enter_context(safe_open(path, framework="pt")), stack
        return self._open[1]


def read_headers(folder: Path) -> dict[str, Header]:
    """The headers of the checkpoint in `folder`, by file name, each with the tensors that are taken from it.

    Raises `CheckpointError` that names the file, and the tensor where one is at fault.
    """
    index = read_index(folder)
    if index is None:
        return {SINGLE_NAME: read_header(folder / SINGLE_NAME)}
    found = {file: read_header(folder / file) for file in dict.fromkeys(index.values())}
    for name, file in index.items():
        if name not in found[file].tensors:
            raise CheckpointError(f"{folder / file} lacks the tensor `{name}` of the index")
    # As transformers 5.24.0, which takes all tensors of the files; the index decides where several have one.
    return {
        file: replace(header, tensors={n: t for n, t in header.tensors.items() if index.get(n, file) == file})
        for file, header in found.items()
    }


def stored_dtype(folder: Path) -> str | None:
    """The dtype in which transformers loads a checkpoint whose config names none; None for torch's default.

    That of the first tensor, by name, of the first file that is a plain float. Source: `_get_dtype` and
    `get_state_dict_dtype` in `transformers/modeling_utils.py` (5.24.0).
    """
    headers = read_headers(folder)
    tensors = headers[min(headers)].tensors
    stored = (DTYPES.get(tensors[name].dtype) for name in sorted(tensors))
    names = (str(dtype).removeprefix("torch.") for dtype in stored if dtype is not None)
    return next((name for name in names if name in PLAIN_FLOATS), None)


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

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        seed: int = 0,
        std: float = 0.02,
        ties: Mapping[str, str] | None = None,
    ) -> None:
        """`ties` has for a tied name the one whose values it has."""
        self.shapes, self.seed, self.std, self.ties = shapes, seed, std, ties or {}
        self.bytes_read = 0

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32

    def read(self, name: str, region: Region) -> Tensor:
        digest = hashlib.sha256(f"{self.seed}:{self.ties.get(name, name)}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        shape = self.shapes[name]
        values = torch.randn(shape, generator=generator) * self.std
        return read_region(values + 1 if len(shape) == 1 else values, region.dims).clone()

    def where(self, name: str) -> str:
        return f"random weights: `{self.ties.get(name, name)}`"
