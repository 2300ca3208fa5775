"""What a piece of work gave on every rank."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank that failed, what it raised, and whether the ranks waited for each other for ever."""

    rank: int
    error: str
    deadlock: bool = False


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """One result for each rank, or the failure of one of them."""

    results: tuple[T, ...] = ()
    failure: Failure | None = None
