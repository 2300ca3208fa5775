"""Apply a plan to a copy on simulated ranks, and compare."""

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from planc.layouts.layout import Layout
from planc.runtime.checkpoint.saving import save_pretrained
from planc.runtime.mesh import Meshes, build_meshes
from planc.verify.applying import Application
from planc.verify.comparing import Departure, departures
from planc.verify.copying.inputs import Batch
from planc.verify.exact import Exact
from planc.verify.experts import use_experts
from planc.verify.fsdp_in_double import gradients_divided_as_in_single
from planc.verify.observing import Observation, Steps, infer, observe
from planc.verify.ranks.outcome import InPhaseError, Ranks
from planc.verify.ranks.processes import RankProcesses
from planc.verify.ranks.threads import RankThreads
from planc.verify.reference import Reference

RankKind = Literal["threads", "gloo"]
# Called with every rank and its model before anything is applied.
Watch = Callable[[int, nn.Module], None]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The ranks didn't finish: `phase` is `apply`, `inference`, `training`, `backward`, `step`, `gather` or `save`.

    `lost` where a rank neither ended nor raised, which says nothing about the plan.
    """

    phase: str
    rank: int
    error: str
    lost: bool = False

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


class Laboratory:
    """A copy, what it gives when run whole, and ranks to try plans on."""

    def __init__(self, model: nn.Module, reference: Reference, layout: Layout, kind: RankKind = "threads") -> None:
        self.model = model
        self.reference = reference
        self.layout = layout
        count = layout.world_size
        self._ranks: Ranks = RankThreads(count) if kind == "threads" else RankProcesses(count)
        # Of the calling rank: threads may be replaced by others, with process groups of their own.
        self._meshes = threading.local()

    def close(self) -> None:
        """End the ranks."""
        self._ranks.close()

    def trial(
        self,
        application: Application,
        steps: Steps | None = None,
        experts: str | None = None,
        reference: Reference | None = None,
    ) -> Trial:
        """Apply, run and compare with `reference` (the copy's own where none is given), in as many steps as it took."""
        reference = self.reference if reference is None else reference
        found = self.observations(application, reference.steps if steps is None else steps, experts)
        if isinstance(found, Stopped):
            return Trial(stopped=found)
        return Trial(departures(reference, found, self.layout))

    def observations(
        self, application: Application, steps: Steps, experts: str | None = None, watch: Watch | None = None
    ) -> Sequence[Observation] | Stopped:
        """What every rank gives under `application`, taking `steps`, with the experts implementation `experts`."""

        def work(rank: int) -> Observation:
            return self._observe(rank, application, steps, experts, watch)

        with gradients_divided_as_in_single():
            return self._run(work)

    def save(self, application: Application, folder: Path) -> Stopped | None:
        """Apply, and save the sharded copy with the runtime's own writer, before anything ran."""

        def work(rank: int) -> Observation:
            phase = "apply"
            try:
                own = self._applied(copy.deepcopy(self.model), application)
                phase = "save"
                save_pretrained(own, folder)
            except Exception as error:
                raise InPhaseError.of(phase, error) from error
            return Observation()

        found = self._run(work)
        return found if isinstance(found, Stopped) else None

    def _run(self, work: Callable[[int], Observation]) -> Sequence[Observation] | Stopped:
        outcome = self._ranks.observe(work)
        if (failure := outcome.failure) is not None:
            return Stopped(failure.phase, failure.rank, failure.error, failure.lost)
        return outcome.results

    def _observe(
        self, rank: int, application: Application, steps: Steps, experts: str | None, watch: Watch | None
    ) -> Observation:
        now = "apply"

        def phase(name: str) -> None:
            nonlocal now
            now = name

        try:
            own = copy.deepcopy(self.model)
            if experts is not None:
                use_experts(own, experts)
            if watch is not None:
                watch(rank, own)
            sharded = self._applied(own, application)
            if self.layout.pp_size > 1:
                return infer(sharded, [self._batch(rank)], phase)  # stages have no backward
            return observe(sharded, [self._batch(rank)], steps, phase)
        except Exception as error:  # whatever a plan makes a model raise is what we are here to see
            raise InPhaseError.of(now, error) from error

    def _applied(self, own: nn.Module, application: Application) -> nn.Module:
        if not hasattr(self._meshes, "own"):
            self._meshes.own = build_meshes(self.layout, "cpu")
        meshes: Meshes = self._meshes.own
        with Exact():
            return application.apply(own, meshes)

    def _batch(self, rank: int) -> Batch:
        place = self.layout.coordinates(rank)
        return self.reference.batches[place["dp_replicate"] * self.layout.fsdp_size + place["fsdp"]]
