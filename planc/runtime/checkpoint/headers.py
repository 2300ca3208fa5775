"""Headers of safetensors files, read without torch and validated before anything else is.

The format is that of safetensors 0.8: eight bytes (little endian) with the length of a JSON header, the header, and
the tensors one after the other without gaps. https://huggingface.co/docs/safetensors
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from planc.runtime.errors import CheckpointError

# The library refuses longer headers.
MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8
METADATA = "__metadata__"
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

Size = Annotated[int, Field(ge=0)]


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: str
    shape: list[Size]
    data_offsets: Annotated[list[Size], Field(min_length=2, max_length=2)]


_HEADER = TypeAdapter(dict[str, _Stored])


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a header says of a tensor: its dtype as safetensors spells it, its shape, and its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Header:
    """The tensors of one file, in the order of the header, and the file's free-form metadata."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_header(path: Path) -> Header:
    """The header of `path`. Raises `CheckpointError` that names the file, and the tensor where one is at fault."""
    content, data_bytes = _content(path)
    metadata = content.pop(METADATA, {})
    try:
        stored = _HEADER.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, rest = (*map(str, first["loc"]), "", "")[:2]
        what = f"`{place}`" + (f", {rest}" if rest else "")
        raise CheckpointError(f"{path} is damaged: {what}: {first['msg']}") from None
    for fault in _faults(stored, data_bytes):
        raise CheckpointError(f"{path} {fault}")
    texts = metadata if isinstance(metadata, dict) else {}
    tensors = {
        name: StoredTensor(t.dtype, tuple(t.shape), t.data_offsets[1] - t.data_offsets[0]) for name, t in stored.items()
    }
    return Header(path, tensors, {str(key): str(value) for key, value in texts.items()})


def _content(path: Path) -> tuple[dict[str, object], int]:
    """The header as JSON, and how many bytes of tensors the file holds."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES:
                raise CheckpointError(f"{path} is damaged or truncated: it has {size} bytes, too few for a header")
            if length > min(size - LENGTH_BYTES, MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{path} is damaged or truncated: it announces a header of {length} bytes, and has {size} in all"
                )
            text = file.read(length)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is damaged or truncated: its header is no JSON") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged or truncated: its header is no JSON object")
    return content, size - LENGTH_BYTES - length


def _faults(tensors: Mapping[str, _Stored], data_bytes: int) -> Iterator[str]:
    """What is wrong with offsets and sizes."""
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        start, stop = tensor.data_offsets
        if tensor.dtype not in BITS:
            yield f"is damaged: `{name}` has the unknown dtype {tensor.dtype}"
        elif start != end or stop < start:
            yield f"is damaged: `{name}` begins at byte {start}, where the tensor before it ends at {end}"
        elif stop - start != -(-prod(tensor.shape) * BITS[tensor.dtype] // 8):
            needed = -(-prod(tensor.shape) * BITS[tensor.dtype] // 8)
            yield f"is damaged: `{name}` ({tensor.shape}, {tensor.dtype}) takes {needed} bytes, not {stop - start}"
        elif stop > data_bytes:
            yield f"is damaged or truncated: `{name}` ends at byte {stop} of the tensors, the file at {data_bytes}"
        end = stop
    if end != data_bytes:
        yield f"is damaged: {data_bytes - end} bytes after the last tensor belong to none"
