"""Loading takes the memory of the shard and of little more, mapped files included."""

import ctypes
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from planc.layouts.placement import Shard
from planc.program.placements import whole
from planc.runtime.checkpoint.saving import save_pretrained
from planc.runtime.checkpoint.writing import order
from planc.runtime.sources import MAPPED_BYTES, SafetensorsFolder

MIB = 1024 * 1024


def resident() -> int:
    """Bytes of memory of this process, pages of mapped files included, without what it has freed already."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD: fixed, or glibc keeps freed tensors after the first ones
    libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_reading_shards_of_a_large_file(tmp_path: Path) -> None:
    shape = (1024, 2048)  # 8 MiB each, 256 MiB in all
    save_file({f"layer.{number}": torch.ones(shape) for number in range(32)}, tmp_path / "model.safetensors")
    source = SafetensorsFolder(tmp_path)
    columns = whole(shape).shard(Shard(1), 8, 3)
    kept, before, most = [], resident(), 0
    for name in source:
        kept.append(source.read(name, columns).clone())
        most = max(most, resident())
    held = sum(block.nbytes for block in kept)
    assert held == source.bytes_read == 32 * MIB
    # The file's pages, up to the limit and one tensor beyond it.
    assert most - before < held + MAPPED_BYTES + 2 * 8 * MIB + 16 * MIB
    source.close()


def test_saving_writes_tensor_by_tensor(tmp_path: Path) -> None:
    class Large(nn.Module):
        """Parameters without memory of their own: what a save takes is its own."""

        def __init__(self) -> None:
            super().__init__()
            for number in range(24):
                self.register_parameter(f"weight{number}", nn.Parameter(torch.zeros(1).expand(2048, 1024)))

    model, before = Large(), resident()
    most: list[int] = []
    save_pretrained(model, tmp_path / "model", progress=lambda done, count: most.append(resident()))
    assert (tmp_path / "model" / "model.safetensors").stat().st_size > 24 * 8 * MIB
    assert max(most) - before < 4 * 8 * MIB
    assert len(most) == 24


def test_the_order_is_that_of_the_library() -> None:
    layout: dict[str, Any] = {"b": ((2,), torch.float16), "a": ((3, 1), torch.float32), "c": ((), torch.float64)}
    assert order(layout) == ["c", "a", "b"]
