"""What a piece of work gave on every rank."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from planc.verify.observing import Observation

T = TypeVar("T")


class InPhaseError(Exception):
    """What stopped a rank, and in which phase of its work."""

    def __init__(self, phase: str, error: str) -> None:
        super().__init__(f"{phase}: {error}")
        self.phase = phase
        self.error = error


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank that failed, in which phase, and what it raised."""

    rank: int
    phase: str
    error: str

    @classmethod
    def of(cls, rank: int, error: BaseException) -> "Failure":
        if isinstance(error, InPhaseError):
            return cls(rank, error.phase, error.error)
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
