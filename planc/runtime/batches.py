"""Which batch a rank reads."""

import os

from planc.layouts.layout import Layout
from planc.program.program import Program
from planc.runtime.apply import PROGRAM_VARIABLE, find_program
from planc.runtime.errors import RunError
from planc.runtime.session import Place, Session


def data_rank(program: Program | None = None) -> int:
    """The number of the batch that this rank reads, from 0 to `data_world_size() - 1`; ranks of a TP group share one.

    Of `program`, else of the program that was applied or that `planc apply … -- script` compiled. 0 in a single
    process. Raises RunError where none of them is known.
    """
    layout, rank = _layout(program)
    place = layout.coordinates(rank)
    return place["dp_replicate"] * layout.fsdp_size + place["fsdp"]


def data_world_size(program: Program | None = None) -> int:
    """How many batches are read at once: `dp_replicate_size * fsdp_size`. Arguments and errors as for `data_rank`."""
    return _layout(program)[0].dp_size


def _layout(program: Program | None) -> tuple[Layout, int]:
    place = Place.from_environment()
    if place is None:
        return Layout(), 0
    if program is not None:
        return program.layout, place.rank
    if (session := Session.current) is not None and session.layout is not None:
        return session.layout, place.rank
    if PROGRAM_VARIABLE in os.environ:
        return find_program(None).layout, place.rank
    raise RunError("no program was applied yet: call `planc.apply` or `planc.from_pretrained` first, or give a program")
