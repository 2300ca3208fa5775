"""Applying a program to a model that is in memory or on the meta device, on this rank."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from planc.model.building.builder import build_manifest
from planc.model.building.choosing import as_dtype, put_on
from planc.model.choices import DTYPES, Choices
from planc.model.errors import ModelError
from planc.model.manifest import Manifest
from planc.program import errors as program_errors
from planc.program.program import Program
from planc.runtime.errors import RunError
from planc.runtime.first_forwards import watch
from planc.runtime.interpreter import apply_operations
from planc.runtime.marking import mark
from planc.runtime.session import Place, Session, stop_on_uncaught_errors
from planc.styles import modules

# Where `planc apply … -- train.py` leaves the compiled program for the script.
PROGRAM_VARIABLE = "PLANC_PROGRAM"
# Inputs that can't be used, as opposed to bugs.
INPUT_ERRORS = (RunError, program_errors.ProgramError, ModelError)


def apply(
    model: nn.Module, program: Program | str | Path | None = None, chosen: Mapping[str, Any] | None = None
) -> nn.Module:
    """Shard `model` in place as `program` says, and install its transforms; returns `model`.

    `program` is a compiled program or its file; without one it is the one that `planc apply … -- script` compiled.
    The model may hold its weights (the same on every rank; each keeps its shards) or be on the meta device, and may be
    in another dtype than the program was compiled for. `chosen` (see `choices`) is put on it first. Raises `RunError`
    when the program was compiled for another model, or when the ranks don't agree; by then every other rank was told,
    and ends as well.
    """
    with session() as joined:
        ready = find_program(program)
        _refuse_quantised(model)
        put_on(model, choices(chosen or {}))
        # Facts that only a recorded forward shows are for checks; the hash is over the structure alone.
        manifest = Manifest(build_manifest(model, ready.model.name, trace=False))
        require(ready, manifest, model)
        return shard(model, ready, joined, manifest)


def choices(arguments: Mapping[str, Any]) -> Choices:
    """The dtype and the implementations to load with: of a call, else what `planc apply … -- script` was given.

    Raises ModelError for what isn't legal.
    """
    return Choices.of(**arguments).over(Choices.from_environment())


def require(program: Program, manifest: Manifest, model: nn.Module) -> None:
    """As `Program.require`, of a model that may be in another dtype than the one that `program` was compiled for.

    `manifest` is that of `model`. No operation depends on a dtype, but for FSDP2, which groups parameters that have
    one; where a group has several it is refused.
    """
    if program.model.manifest != manifest.hash:
        for name in DTYPES:
            other = Manifest(build_manifest(model, manifest.file.name, trace=False, as_if=as_dtype(name)))
            if other.hash == program.model.manifest:
                manifest = other
                break
    program.require(manifest)


def _refuse_quantised(model: nn.Module) -> None:
    """Refuse weights that a quantizer of transformers still keeps as codes; those it dequantised are plain."""
    if getattr(model, "hf_quantizer", None) is not None:
        method = getattr(model, "quantization_method", None)
        raise RunError(
            f"the model's weights are quantised by `{getattr(method, 'value', method)}`, and planc shards plain ones: "
            "load it with `dequantize=True` where its method has that, or take a checkpoint that isn't quantised"
        )


def shard(model: nn.Module, program: Program, joined: Session | None, manifest: Manifest) -> nn.Module:
    """Apply `program` to the model that it was compiled for, after all ranks agreed on it and on the model's facts."""
    if joined is None:
        if program.layout.world_size > 1:
            raise RunError(
                f"the program is for {program.layout.world_size} processes and this is one: start the script with "
                "`planc apply MODEL PLAN -- script.py`, or with torchrun"
            )
        return model
    joined.agree(program.layout.world_size, program.hash, manifest.hash)
    meshes = joined.meshes(program.layout)
    joined.layout = program.layout
    apply_operations(model, program.operations, meshes)
    mark(model, program, meshes)
    watch(model, program, joined)
    return model


@contextmanager
def session() -> Iterator[Session | None]:
    """This process's part in the run, joined at the first use; None where no launcher started it.

    Imports the modules of styles that the command line named. An error within tells the other ranks why everyone stops.
    Where an input can't be used, what comes out is a `RunError` with the message that all of them get.
    """
    joined = Session.current
    if joined is None and (place := Place.from_environment()) is not None:
        joined = Session.open(place)
        stop_on_uncaught_errors()
    try:
        _import_styles()
        yield joined
    except INPUT_ERRORS as error:
        known = error if isinstance(error, RunError) else RunError(str(error))
        raise (known if joined is None else joined.fail(known)) from None
    except Exception as error:
        if joined is not None:
            joined.fail(error)
        raise


def _import_styles() -> None:
    """Import the modules of styles that the command which started this process was given."""
    try:
        modules.import_named()
    except modules.StylesModuleError as error:
        raise RunError(str(error)) from error


def find_program(program: Program | str | Path | None) -> Program:
    """The program itself, read from its file, or the one that the launcher left."""
    if isinstance(program, Program):
        return program
    path = program if program is not None else os.environ.get(PROGRAM_VARIABLE)
    if path is None:
        raise RunError(f"no program was given, and {PROGRAM_VARIABLE} is not set: start this with `planc apply … --`")
    return Program.load(Path(path))
