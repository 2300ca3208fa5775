"""Which files of a folder are its checkpoint, and which tensor is in which. Read without torch."""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from planc.runtime.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
# An index is some hundred bytes a tensor; a larger one is not read into memory.
MAX_INDEX_BYTES = 256 * 1024 * 1024


class _Index(BaseModel):
    weight_map: dict[str, str]


def read_index(folder: Path) -> dict[str, str] | None:
    """Tensor name to file name, as the folder's index says; None for a folder with the single file."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder")
    index = folder / INDEX_NAME
    # As transformers 5.24.0: the single file wins where both are there.
    if (folder / SINGLE_NAME).is_file():
        return None
    if not index.is_file():
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
