"""Headers of safetensors files: those of the library, and hostile ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from planc.runtime.checkpoint.dtypes import DTYPES
from planc.runtime.checkpoint.headers import BITS, read_header
from planc.runtime.errors import CheckpointError


def written(path: Path, header: Any, data: int = 8, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data))
    return path


def entry(**changes: Any) -> dict[str, Any]:
    return {"a.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def test_what_the_library_writes(tmp_path: Path) -> None:
    tensors = {f"of {dtype}": torch.zeros(3, 2, dtype=dtype) for dtype in DTYPES.values()}
    save_file(tensors, tmp_path / "all.safetensors", metadata={"format": "pt"})
    header = read_header(tmp_path / "all.safetensors")
    assert header.metadata == {"format": "pt"}
    assert {name: (DTYPES[t.dtype], t.shape, t.size) for name, t in header.tensors.items()} == {
        name: (tensor.dtype, (3, 2), tensor.nbytes) for name, tensor in tensors.items()
    }


def test_every_dtype_has_its_width() -> None:
    assert all(BITS[name] == dtype.itemsize * 8 for name, dtype in DTYPES.items())


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "its header is no JSON"),
        (b"{", "its header is no JSON"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "its header is no JSON"),
        (b"\xff\xfe", "its header is no JSON"),
        ({"a.weight": []}, "`a.weight`"),
        (entry(shape=[-2]), "`a.weight`, shape"),
        (entry(shape="2"), "`a.weight`, shape"),
        (entry(shape=[2.0]), "`a.weight`, shape"),
        (entry(data_offsets=[0]), "`a.weight`, data_offsets"),
        (entry(more=1), "`a.weight`, more"),
        (entry(dtype="F31"), "`a.weight` has the unknown dtype F31"),
        (entry(dtype="BF16"), r"`a.weight` \(\[2\], BF16\) takes 4 bytes, not 8"),
        (entry(shape=[2**62, 2**62]), "`a.weight` .* takes .* bytes, not 8"),
        (entry(data_offsets=[8, 16]), "`a.weight` begins at byte 8, where the tensor before it ends at 0"),
        (entry(data_offsets=[8, 0]), "`a.weight` begins at byte 8"),
        (entry(shape=[4], data_offsets=[0, 16]), "`a.weight` ends at byte 16 of the tensors, the file at 8"),
        (entry(shape=[1], data_offsets=[0, 4]), "4 bytes after the last tensor belong to none"),
        (entry() | {"b": entry()["a.weight"]}, "`b` begins at byte 0, where the tensor before it ends at 8"),
    ],
)
def test_hostile_headers(header: Any, says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.safetensors", header)
    with pytest.raises(CheckpointError, match=says) as caught:
        read_header(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [17, 2**40, 2**63, 2**64 - 1])
def test_a_length_beyond_the_file(length: int, tmp_path: Path) -> None:
    path = written(tmp_path / "x.safetensors", b"{}", data=0, length=length)
    with pytest.raises(CheckpointError, match=f"announces a header of {length} bytes, and has 10"):
        read_header(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "short.safetensors").write_bytes(b"\x00" * 5)
    with pytest.raises(CheckpointError, match="has 5 bytes"):
        read_header(tmp_path / "short.safetensors")
    with pytest.raises(CheckpointError, match=r"gone\.safetensors is missing"):
        read_header(tmp_path / "gone.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="can't be read"):
        read_header(tmp_path / "folder.safetensors")


def test_a_sparse_terabyte_takes_no_time(tmp_path: Path) -> None:
    size = 2**40
    path = written(tmp_path / "x.safetensors", entry(shape=[size // 4], data_offsets=[0, size]), data=0)
    with path.open("r+b") as file:
        try:
            file.truncate(path.stat().st_size + size)
        except OSError:
            pytest.skip("this file system has no sparse files of that size")
    assert read_header(path).tensors["a.weight"].size == size
