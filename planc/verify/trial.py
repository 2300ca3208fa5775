"""Apply a plan to a copy on simulated ranks, and compare."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from planc.layouts.layout import Layout
from planc.runtime.mesh import Meshes, build_meshes
from planc.verify.applying import Application
from planc.verify.comparing import Departure, departures
from planc.verify.copying.inputs import Batch
from planc.verify.exact import Exact
from planc.verify.experts import use_experts
from planc.verify.fsdp_in_double import gradients_divided_as_in_single
from planc.verify.observing import Observation, Steps, observe
from planc.verify.ranks.threads import RankThreads
from planc.verify.reference import Reference


@dataclass(frozen=True, slots=True)
class Stopped:
    """The ranks didn't finish: `phase` is `apply`, `inference`, `training`, `backward`, `step` or `gather`."""

    phase: str
    rank: int
    error: str

    @property
    def refused(self) -> bool:
        """Whether the plan was refused while it was being applied."""
        return self.phase == "apply"


@dataclass(frozen=True, slots=True)
class Trial:
    """What applying one plan gave: either it stopped, or here is what departs (nothing if all agrees)."""

    departures: tuple[Departure, ...] = ()
    stopped: Stopped | None = None

    @property
    def agrees(self) -> bool:
        return self.stopped is None and not self.departures


# Called with every rank and its model before anything is applied.
Watch = Callable[[int, nn.Module], None]


class Laboratory:
    """A copy, what it gives when run whole, and ranks to try plans on."""

    def __init__(self, model: nn.Module, reference: Reference, layout: Layout) -> None:
        self.model = model
        self.reference = reference
        self.layout = layout
        self.tried = 0
        self.ranks = RankThreads(layout.world_size)
        self._meshes = self._build_meshes()

    def close(self) -> None:
        self.ranks.close()

    def _build_meshes(self) -> Sequence[Meshes]:
        outcome = self.ranks.run(lambda _: build_meshes(self.layout, "cpu"))
        if outcome.failure is not None:
            raise RuntimeError(f"no mesh on the simulated ranks: {outcome.failure.error}")
        return outcome.results

    def observations(
        self, application: Application, steps: Steps, experts: str | None = None, watch: Watch | None = None
    ) -> Sequence[Observation] | Stopped:
        """What every rank gives under `application`, taking `steps`, with the experts implementation `experts`."""
        self.tried += 1
        phases = ["apply"] * self.layout.world_size

        def work(rank: int) -> Observation:
            def phase(name: str) -> None:
                phases[rank] = name

            own = copy.deepcopy(self.model)
            if experts is not None:
                use_experts(own, experts)
            if watch is not None:
                watch(rank, own)
            with Exact():
                sharded = application.apply(own, self._meshes[rank])
            return observe(sharded, [self._batch(rank)], steps, phase)

        with gradients_divided_as_in_single():
            outcome = self.ranks.run(work)
        if outcome.failure is not None:
            return Stopped(phases[outcome.failure.rank], outcome.failure.rank, outcome.failure.error)
        return outcome.results

    def _batch(self, rank: int) -> Batch:
        place = self.layout.coordinates(rank)
        return self.reference.batches[place["dp_replicate"] * self.layout.fsdp_size + place["fsdp"]]

    def trial(self, application: Application, steps: Steps | None = None, experts: str | None = None) -> Trial:
        """Apply, run and compare; by default with as many steps as the reference took."""
        found = self.observations(application, self.reference.steps if steps is None else steps, experts)
        if isinstance(found, Stopped):
            return Trial(stopped=found)
        return Trial(departures(self.reference, found, self.layout))
