"""What a piece of work gave on every rank."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from planc.verify.observing import Observation

T = TypeVar("T")
# Seen once in thousands of trials with threads, CPython 3.11.7 and torch 2.13.0: a dict in the place of a frame.
_OF_FRAMES = ("f_code", "f_back", "f_lineno")


class InPhaseError(Exception):
    """What stopped a rank, in which phase of its work; `lost` where that says nothing about the plan."""

    def __init__(self, phase: str, error: str, lost: bool = False) -> None:
        super().__init__(f"{phase}: {error}")
        self.phase = phase
        self.error = error
        self.lost = lost

    @classmethod
    def of(cls, phase: str, error: Exception) -> "InPhaseError":
        """Of what a model or a plan raised, or the interpreter itself: no model looks at frames."""
        said = f"{type(error).__name__}: {error}"
        if not (isinstance(error, AttributeError) and error.name in _OF_FRAMES):
            return cls(phase, said)
        place = traceback.extract_tb(error.__traceback__)[-1]
        return cls(phase, f"{said} ({place.filename}:{place.lineno})", lost=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank that failed, in which phase, and what it raised; `lost` where it just didn't end."""

    rank: int
    phase: str
    error: str
    lost: bool = False

    @classmethod
    def of(cls, rank: int, error: BaseException) -> "Failure":
        if isinstance(error, InPhaseError):
            return cls(rank, error.phase, error.error, error.lost)
        return cls(rank, "", f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """One result for each rank, or the failure of one of them."""

    results: tuple[T, ...] = ()
    failure: Failure | None = None


class Ranks(Protocol):
    """Ranks that can be given work: threads of this process, or processes."""

    count: int

    def observe(self, work: Callable[[int], Observation]) -> Outcome[Observation]:
        """Call `work(rank)` on every rank at once, inside a process group of them all."""

    def close(self) -> None: ...
