"""From a model's name and a checkpoint folder to a sharded model with its weights."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

from planc.model.building.builder import build_model
from planc.model.building.configs import first_line
from planc.model.building.precision import kept_in_float32
from planc.model.building.reading import config_names_dtype
from planc.model.choices import Choices
from planc.model.sources import load_manifest
from planc.program.program import Program
from planc.runtime.apply import choices, find_program, require, session, shard
from planc.runtime.checkpoint.converted import ConvertedSource, ties_of
from planc.runtime.checkpoint.dequantising import forget_quantization
from planc.runtime.checkpoint.quantisation import in_config, method_name
from planc.runtime.checkpoint.reading import read_checkpoint
from planc.runtime.errors import CheckpointError
from planc.runtime.interpreter.holders import Holders
from planc.runtime.loading import Loaded, Progress, bytes_held, load_weights, materialise_rest
from planc.runtime.memory import refuse_too_large, sharing
from planc.runtime.session import Session
from planc.runtime.sources import RandomWeights, TensorSource, stored_dtype


@dataclass(frozen=True)
class Prepared:
    """A sharded model with weights, and what it took: bytes on this rank, seconds."""

    model: nn.Module
    session: Session | None
    loaded: Loaded
    bytes_held: int
    seconds_applying: float
    seconds_loading: float


def from_pretrained(
    model: str | Path,
    program: Program | str | Path | None = None,
    checkpoint: str | Path | None = None,
    chosen: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model of a folder, sharded, with this rank's shards of its weights, in evaluation mode.

    `checkpoint` is a folder of safetensors where `model` isn't one. `program` and `chosen` as for `apply`. Each rank
    reads its own shards only. Raises `RunError` with the same message on every rank.
    """
    with session() as joined:
        folder = Path(checkpoint if checkpoint is not None else model)
        return prepare(str(model), find_program(program), joined, folder, asked=choices(chosen or {})).model


def prepare(
    model: str,
    program: Program,
    joined: Session | None,
    checkpoint: Path | None,
    progress: Progress | None = None,
    seed: int = 0,
    asked: Choices | None = None,
) -> Prepared:
    """Build on the meta device, apply, materialise, load; random weights where there is no checkpoint."""
    started = perf_counter()
    chosen = settled(model, checkpoint, asked or Choices())
    built = in_loading_dtypes(build_model(model, choices=chosen))
    manifest = load_manifest(model, dtype=chosen.dtype)
    require(program, manifest, built)
    name_after(built, model)
    quantised = in_config(built.config.to_dict()) if isinstance(built, PreTrainedModel) else None
    source = weights(built, checkpoint, seed)
    read_generation_config(built, [folder for folder in (checkpoint, Path(model)) if folder is not None])
    if joined is None or joined.place.rank == 0:
        tell_quantisation(quantised, source)
    built = shard(built, program, joined, manifest)
    device = joined.device if joined is not None else torch.device("cpu")
    refuse_too_large(bytes_held(built), device, sharing(device))
    applied = perf_counter()
    loaded = load_weights(built, source, device, progress=progress)
    if joined is None or joined.place.rank == 0:
        tell_surplus(source, loaded.unexpected)
    materialise_rest(built, device)
    built.eval()
    return Prepared(built, joined, loaded, bytes_held(built), applied - started, perf_counter() - applied)


def settled(model: str, checkpoint: Path | None, asked: Choices) -> Choices:
    """`asked` with the dtype of the checkpoint where neither they nor the config names one, as transformers has it."""
    if asked.dtype is not None or checkpoint is None or not checkpoint.is_dir() or config_names_dtype(model):
        return asked
    return replace(asked, dtype=stored_dtype(checkpoint))


def weights(model: nn.Module, checkpoint: Path | None, seed: int) -> TensorSource:
    """Where the weights of an unsharded model come from."""
    if checkpoint is None:
        state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        forget_quantization(model)
        return RandomWeights(state, seed, ties=ties_of(model))
    if not checkpoint.is_dir():
        raise CheckpointError(f"`{checkpoint}` is no folder with a checkpoint")
    return read_checkpoint(model, checkpoint)


def read_generation_config(model: nn.Module, folders: Sequence[Path]) -> None:
    """Give `model` the `generation_config.json` of the first of `folders` that has one, as transformers' loader does.

    Without one, `config.json` says what it says of generation. Raises `CheckpointError` for a file that isn't one.
    Source: `GenerationMixin.adjust_generation_fn` in `transformers/generation/utils.py` (5.24.0).
    """
    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        return
    files = [folder / name for name in (GENERATION_CONFIG_NAME, CONFIG_NAME) for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return
    of_model = {"_from_model_config": True} if file.name == CONFIG_NAME else {}
    try:
        model.generation_config = GenerationConfig.from_pretrained(file.parent, config_file_name=file.name, **of_model)
    except Exception as error:  # damaged or foreign content makes it raise many kinds
        raise CheckpointError(f"`{file}` is no generation config: {first_line(error)}") from error


def name_after(model: nn.Module, folder: str) -> None:
    """Tell `model` where it comes from, as transformers' loader does: adapters and model cards name it as base."""
    if isinstance(model, PreTrainedModel):
        model.name_or_path = model.config.name_or_path = folder


def tell_quantisation(config: Mapping[str, Any] | None, source: TensorSource) -> None:
    """Say that a model whose `config` calls it quantised, or whose checkpoint is, gets plain weights."""
    dequantised = source.quantization if isinstance(source, ConvertedSource) else None
    if dequantised is not None:
        sys.stderr.write(f"planc: weights quantised by `{method_name(dequantised)}` are dequantised as they are read\n")
    elif config is not None:
        sys.stderr.write(f"planc: the model is quantised by `{method_name(config)}`, and these weights are not\n")


def tell_surplus(source: TensorSource, names: Sequence[str]) -> None:
    """Say which tensors of the checkpoint are left out, as transformers does; `planc checkpoint check` refuses them."""
    if names:
        where = source.where_stored(names[0]) if isinstance(source, ConvertedSource) else source.where(names[0])
        count = f"{len(names)} tensors" if len(names) > 1 else "a tensor"
        sys.stderr.write(f"planc: the checkpoint holds {count} that the model has no place for: {where}\n")


def in_loading_dtypes(model: nn.Module) -> nn.Module:
    """`model`, still on the meta device, with the parameters that transformers keeps in float32 in that dtype."""
    in_float32 = kept_in_float32(model)
    holders = Holders(model)
    for names, parameter in holders:
        if parameter.dtype != torch.float32 and any(in_float32(name) for name in names):
            holders.replace(parameter, nn.Parameter(parameter.float(), requires_grad=parameter.requires_grad))
    return model
