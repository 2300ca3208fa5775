"""Where ranks depart from the whole copy, and by how much."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from planc.layouts.layout import Layout
from planc.verify.observing import Observation
from planc.verify.reference import Reference, largest, tensors

Part = Literal["weights", "inference", "training", "gradients", "stepped", "saved"]


@dataclass(frozen=True, slots=True)
class Departure:
    """A tensor on `rank` that isn't what the whole copy has.

    `error` is the largest difference, `scale` the largest element of the right tensor, `factor` the multiple of the
    right tensor that comes nearest; `exact` tells that it comes within rounding. `shape` is the shape found where it is
    another one.
    """

    part: Part
    name: str
    rank: int
    error: float
    scale: float
    factor: float = 0.0
    exact: bool = False
    shape: tuple[int, ...] | None = None

    @property
    def relative(self) -> float:
        return self.error / self.scale if self.scale else float("inf")


def departures(reference: Reference, observed: Sequence[Observation], layout: Layout) -> tuple[Departure, ...]:
    """All tensors of all ranks that depart, each on the first rank where it does, in the order of the parts."""
    found: dict[tuple[Part, str], Departure] = {}
    for rank, observation in enumerate(observed):
        batch = _batch_of(rank, layout)
        for departure in _on_rank(reference, observation, rank, batch, _elsewhere(observed, rank, layout)):
            found.setdefault((departure.part, departure.name), departure)
    order: tuple[Part, ...] = ("weights", "inference", "training", "gradients", "stepped")
    return tuple(sorted(found.values(), key=lambda departure: order.index(departure.part)))


def _elsewhere(observed: Sequence[Observation], rank: int, layout: Layout) -> set[str]:
    """Parameters that other stages of the pipeline keep in place of this rank's."""
    stage = layout.coordinates(rank)["pp"]
    others = (o.weights for r, o in enumerate(observed) if layout.coordinates(r)["pp"] != stage)
    return {name for weights in others for name in weights}


def _batch_of(rank: int, layout: Layout) -> int:
    place = layout.coordinates(rank)
    return place["dp_replicate"] * layout.fsdp_size + place["fsdp"]


def _on_rank(
    reference: Reference, observation: Observation, rank: int, batch: int, elsewhere: set[str]
) -> Iterator[Departure]:
    expected = reference.observation
    for name, tensor in expected.weights.items():
        if name in elsewhere and name not in observation.weights:
            continue
        yield from compare("weights", name, rank, tensor, observation.weights.get(name), 0.0)
    parts: tuple[Part, ...] = ("inference", "training")
    for part in parts:
        for name, tensor in tensors(observation, part).items():
            own = f"{batch}.{name.partition('.')[2]}"
            tolerance = reference.tolerances[part][own]
            yield from compare(part, own.partition(".")[2], rank, tensors(expected, part)[own], tensor, tolerance)
    for part in ("gradients", "stepped"):
        found = tensors(observation, part)
        for name, tensor in tensors(expected, part).items() if found else ():
            yield from compare(part, name, rank, tensor, found.get(name), reference.tolerances[part][name])


def compare(
    part: Part, name: str, rank: int, expected: Tensor, found: Tensor | None, tolerance: float
) -> Iterator[Departure]:
    """The departure of one tensor by more than `tolerance`, if it does."""
    scale = largest(expected)
    if found is None or found.shape != expected.shape:
        yield Departure(part, name, rank, scale, scale, shape=tuple(found.shape) if found is not None else ())
    elif not (error := largest(found - expected)) <= tolerance:
        square = float(expected.square().sum())
        factor = float((found * expected).sum()) / square if square else 0.0
        exact = largest(found - factor * expected) <= max(tolerance, 1e-9 * scale)
        yield Departure(part, name, rank, error, scale, factor, exact)
