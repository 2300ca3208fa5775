"""A safetensors file written tensor by tensor: the header first, so that no more than one tensor is in memory.

The safetensors library (0.8) writes a file from all of its tensors at once. It still decides the order here: what it
makes of empty tensors of the same names and dtypes.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import torch
from safetensors.torch import save
from torch import Tensor

from planc.runtime.checkpoint.dtypes import SPELLED
from planc.runtime.checkpoint.headers import LENGTH_BYTES, METADATA

# Name to shape and dtype.
Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
_ALIGNMENT = 8


def order(tensors: Layout) -> list[str]:
    """The order in which the library lays tensors of these names and dtypes out."""
    content = save({name: torch.empty(0, dtype=dtype) for name, (_, dtype) in tensors.items()})
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + length])
    return [name for name in header if name != METADATA]


def header(tensors: Layout, metadata: Mapping[str, str]) -> bytes:
    """The first bytes of the file, to be followed by the tensors in `order`."""
    entries: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order(tensors):
        shape, dtype = tensors[name]
        start, end = end, end + prod(shape) * dtype.itemsize
        entries[name] = {"dtype": SPELLED[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def write_tensor(file: IO[bytes], tensor: Tensor) -> None:
    """The values of `tensor` in row-major order, little endian as every machine that torch runs on."""
    if tensor.numel():
        values: Any = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        write_all(file, memoryview(values))


def write_all(file: IO[bytes], content: bytes | memoryview) -> None:
    """An unbuffered file may take a part only (two gigabytes at most, or what the disk has left)."""
    left = memoryview(content)
    while len(left):
        left = left[file.write(left) :]


def open_for_writing(path: Path) -> IO[bytes]:
    """Unbuffered: a full disk is noticed at the tensor that doesn't fit."""
    return path.open("wb", buffering=0)
