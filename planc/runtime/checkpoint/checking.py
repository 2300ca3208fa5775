"""Whether a folder holds every weight that a model needs, in the right shape, with nothing left over.

Only headers are read, and where names and shapes are the model's own no torch is needed: an answer about a terabyte
takes as long as one about a megabyte.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planc.diagnostics.diagnostic import Diagnostic
from planc.model.manifest import Manifest
from planc.runtime.checkpoint import codes
from planc.runtime.checkpoint.headers import Header, StoredTensor, read_header
from planc.runtime.checkpoint.index import INDEX_NAME, SINGLE_NAME, read_index
from planc.runtime.checkpoint.quantisation import QuantisedError, quantization_of
from planc.runtime.errors import CheckpointError

if TYPE_CHECKING:
    from planc.runtime.checkpoint.converted import ConvertedSource

FLOATS = frozenset({"F16", "BF16", "F32", "F64"})
# Findings of one kind about more tensors than this are one finding.
LISTED = 5


def check_folder(folder: Path, manifest: Manifest) -> list[Diagnostic]:
    """All findings about the checkpoint in `folder` for the model of `manifest`."""
    try:
        index = read_index(folder)
    except CheckpointError as error:
        return [_found(codes.UnreadableCheckpoint, folder, str(error))]
    headers, found = _headers(folder, index)
    found += _unlisted(folder, index)
    if any(finding.code == codes.DamagedFile.code.code for finding in found):
        # What else is missing or surplus can't be told apart from what the damaged files hold.
        return found
    try:
        quantization_of(folder, manifest.file.config)
    except QuantisedError as error:
        return [*found, _found(codes.QuantisedCheckpoint, folder, str(error))]
    except CheckpointError as error:
        return [*found, _found(codes.UnreadableCheckpoint, folder, str(error))]
    stored = {name: (header.path, tensor) for header in headers for name, tensor in header.tensors.items()}
    if _is_plain(stored, manifest):
        return found
    return found + list(_judged(folder, manifest))


def _headers(folder: Path, index: Mapping[str, str] | None) -> tuple[list[Header], list[Diagnostic]]:
    """The headers of all files, and what is wrong with any of them."""
    headers, found = [], []
    files = [SINGLE_NAME] if index is None else list(dict.fromkeys(index.values()))
    for file in files:
        try:
            header = read_header(folder / file)
        except CheckpointError as error:
            names = [name for name, place in (index or {}).items() if place == file]
            more = f" ({len(names)} tensors of the index are in it, such as `{names[0]}`)" if names else ""
            found.append(_found(codes.DamagedFile, folder / file, str(error) + more, *names))
            continue
        headers.append(header)
        for name in [name for name, place in (index or {}).items() if place == file and name not in header.tensors]:
            message = f"{folder / file} lacks the tensor `{name}`, which {INDEX_NAME} places there"
            found.append(_found(codes.DamagedFile, folder / file, message, name))
    return headers, found


def _unlisted(folder: Path, index: Mapping[str, str] | None) -> list[Diagnostic]:
    listed = {SINGLE_NAME} if index is None else set(index.values())
    others = sorted(path.name for path in folder.glob("*.safetensors") if path.name not in listed)
    part_of = SINGLE_NAME if index is None else INDEX_NAME
    return [
        _found(codes.UnlistedFile, folder / file, f"{folder / file} is not read: {part_of} is the checkpoint")
        for file in others
    ]


def _is_plain(stored: Mapping[str, tuple[Path, StoredTensor]], manifest: Manifest) -> bool:
    """Whether the tensors are the model's parameters under their own names, no more and no less."""
    ties = dict(manifest.file.ties)
    needed = {ties.get(name, name) for name in manifest.parameters}
    present = {ties.get(name, name) for name in stored if name in manifest.parameters}
    return present == needed and all(
        name in manifest.parameters and tensor.shape == manifest.parameters[name][1].shape and tensor.dtype in FLOATS
        for name, (_, tensor) in stored.items()
    )


def _judged(folder: Path, manifest: Manifest) -> Iterator[Diagnostic]:
    """What is wrong once transformers' conversions are taken into account; needs the model itself."""
    from planc.model.building.builder import build_model
    from planc.runtime.checkpoint.reading import read_checkpoint

    model = build_model(manifest.file.name)
    try:
        source = read_checkpoint(model, folder)
    except CheckpointError as error:
        yield _found(codes.MissingTensor, folder, str(error))
        return
    yield from _missing(model, source, folder)
    yield from _different(model, source, folder)
    yield from _surplus(model, source, folder)


def _missing(model: Any, source: "ConvertedSource", folder: Path) -> Iterator[Diagnostic]:
    from planc.runtime.checkpoint.converted import is_optional
    from planc.runtime.loading import needed_names

    missing = [names for names in needed_names(model) if not any(name in source for name in names)]
    names = [names[0] for names in missing if not is_optional(model, names[0])]
    for name in names[:LISTED]:
        yield _found(codes.MissingTensor, folder, f"the checkpoint lacks `{name}`", name)
    if len(names) > LISTED:
        message = f"the checkpoint lacks {len(names) - LISTED} more tensors, such as `{names[LISTED]}`"
        yield _found(codes.MissingTensor, folder, message, *names[LISTED:])


def _different(model: Any, source: "ConvertedSource", folder: Path) -> Iterator[Diagnostic]:
    from planc.runtime.loading import has_other_meaning

    state = model.state_dict()
    for name in source:
        tensor = state[name]
        if source.shape(name) != tuple(tensor.shape):
            message = f"{source.where(name)} has shape {list(source.shape(name))}, the model {list(tensor.shape)}"
            yield _found(codes.WrongShape, folder, message, name)
        elif has_other_meaning(source.dtype(name), tensor.dtype):
            message = f"{source.where(name)} holds {source.dtype(name)}, the model {tensor.dtype}".replace("torch.", "")
            yield _found(codes.WrongDtype, folder, message, name)


def _surplus(model: Any, source: "ConvertedSource", folder: Path) -> Iterator[Diagnostic]:
    from planc.runtime.checkpoint.converted import may_be_surplus

    names = [name for name in source.unexpected if not may_be_surplus(model, name)]
    for name in names[:LISTED]:
        message = f"the model has no place for {source.where_stored(name)}"
        yield _found(codes.SurplusTensor, folder, message, name)
    if len(names) > LISTED:
        message = f"the model has no place for {len(names) - LISTED} more tensors, such as `{names[LISTED]}`"
        yield _found(codes.SurplusTensor, folder, message, *names[LISTED:])


def _found(kind: Any, path: Path, message: str, *tensors: str) -> Diagnostic:
    """A finding about `path`, with paths in it shortened to what follows the folder that the report is about."""
    folder = path if path.is_dir() else path.parent
    found: Diagnostic = kind.code.found(
        message.replace(f"{folder}/", ""),
        targets=tensors[:LISTED],
        target_count=len(tensors),
    )
    return found
