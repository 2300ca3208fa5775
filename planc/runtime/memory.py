"""Whether this rank's shards fit into the memory that is there."""

import os
from pathlib import Path

import torch

from planc.runtime.errors import RunError


def refuse_too_large(needed: int, device: torch.device, ranks: int) -> None:
    """Raises `RunError` when `needed` bytes for each of `ranks` that share the memory of `device` don't fit."""
    free = free_bytes(device)
    if free is not None and needed * ranks > free:
        each = (
            f"{ranks} ranks of this machine need {in_words(needed)} each" if ranks > 1 else f"{in_words(needed)} needed"
        )
        raise RunError(f"the model doesn't fit: {each}, and {in_words(free)} are free")


def sharing(device: torch.device) -> int:
    """How many ranks share the memory of this rank's device: those of this machine on the CPU."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if device.type == "cpu" else 1


def free_bytes(device: torch.device) -> int | None:
    """Free memory of `device` in bytes; None where the system doesn't tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def in_words(count: int) -> str:
    """Bytes in the largest decimal unit that leaves a number above 1."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
