"""Checkpoints: real ones in, ordinary ones out. Nothing here imports torch before it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def save_pretrained(model: "nn.Module", folder: str | Path, **options: Any) -> None:
    """Save a sharded model as an ordinary checkpoint; see `planc.runtime.checkpoint.saving`."""
    from planc.runtime.checkpoint.saving import save_pretrained as save
    from planc.runtime.checkpoint.saving import stderr_progress

    save(model, Path(folder), **{"progress": stderr_progress, **options})
