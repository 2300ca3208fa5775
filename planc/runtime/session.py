"""A rank's part in a run: the launcher's store, the agreement, the process group, and an end together with the others.

Under torchrun (or anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) and under planc's own launcher.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, sleep
from types import TracebackType
from typing import ClassVar

import torch
import torch.distributed as dist
from torch.distributed import DistError
from torch.distributed.distributed_c10d import PrefixStore, Store

from planc.layouts.layout import Layout
from planc.runtime.agreement import JOIN_SECONDS, Claim, Stopped, agree, stop, wait_until_seen
from planc.runtime.errors import LOST_RANK, RunError
from planc.runtime.mesh import BACKENDS, Meshes, bind_device, build_meshes, device_type
from planc.runtime.watchdog import Watchdog, host_identity

# Loading a large model takes tens of minutes with ranks far apart; as in transformers 5.24.0.
COLLECTIVE_TIMEOUT = timedelta(hours=2)
CONNECT_TIMEOUT = timedelta(seconds=60)
# How long a rank that hosts the store stays for the others to be done.
LEAVE_SECONDS = 300.0
# How long a rank whose collective failed waits for a watchdog to name the rank that was lost.
VERDICT_SECONDS = 2.0
# Set by planc's own launcher, which says why a run was stopped once for all ranks.
LAUNCHER_TELLS = "PLANC_LAUNCHER_TELLS"
# The variables that a launcher sets.
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """Where a process stands in a run, as its launcher says."""

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    hosts_store: bool
    prefix: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Place | None":
        """None where no launcher started this process. Raises `RunError` for variables that make no sense."""
        if "RANK" not in environment:
            return None
        if missing := [name for name in VARIABLES if name not in environment]:
            raise RunError(f"RANK is set, but {', '.join(missing)} is not: start the ranks with a launcher")
        try:
            rank, world_size, port = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
            local_rank = int(environment.get("LOCAL_RANK", rank))
        except ValueError as error:
            raise RunError(f"RANK, WORLD_SIZE, LOCAL_RANK and MASTER_PORT must be numbers: {error}") from None
        if not 0 <= rank < world_size:
            raise RunError(f"RANK={rank} is not within WORLD_SIZE={world_size}")
        # torchrun keeps the store itself and tells attempts apart by a prefix.
        agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        address = environment["MASTER_ADDR"]
        return cls(rank, world_size, local_rank, address, port, rank == 0 and not agent, f"/worker/attempt_{attempt}")


def connect(place: Place, hosts: bool) -> Store:
    """A connection to the launcher's store. Raises `RunError` when nobody answers."""
    try:
        tcp = dist.TCPStore(  # type: ignore[attr-defined]
            place.address,
            place.port,
            place.world_size,
            hosts,
            timeout=CONNECT_TIMEOUT,
            # Ranks with another world size would never all arrive: `agree` waits for them, and says so.
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (DistError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"no store at {place.address}:{place.port}: {reason}", LOST_RANK) from None
    return PrefixStore(place.prefix, tcp)


@dataclass
class Session:
    """This process's part in a run. One a process: `Session.current` is the one that was joined."""

    place: Place
    store: Store
    device: torch.device
    claims: Mapping[int, Claim] = field(default_factory=dict)
    _watchdog: Watchdog | None = None
    _own: Claim | None = None
    _meshes: dict[Layout, Meshes] = field(default_factory=dict)
    # Of the program that was applied last.
    layout: Layout | None = None
    current: ClassVar["Session | None"] = None

    @classmethod
    def open(cls, place: Place) -> "Session":
        """Connect to the launcher's store. Raises `RunError` when nobody answers."""
        store = connect(place, place.hosts_store)
        session = cls(place, store, bind_device(device_type(), place.local_rank))
        cls.current = session
        return session

    def agree(self, world_size: int, program: str, manifest: str, seconds: float = JOIN_SECONDS) -> None:
        """Compare program, model and world size with the other ranks, then watch them.

        `world_size` is the program's. Raises `Stopped` on every rank when they differ.
        """
        if world_size != self.place.world_size:
            raise stop(
                self.store,
                f"the program is for {world_size} processes (its layout), but {self.place.world_size} were started",
            )
        # A second model may be in another dtype, which makes it another manifest.
        if self._own is not None and self._own.program == program:
            return
        if self._own is not None:
            raise stop(self.store, "one run can't apply two programs: start the script once for each")
        claim = Claim(self.place.rank, self.place.world_size, program, manifest, host_identity(), os.getpid())
        self._own = claim
        try:
            self.claims = agree(self.store, claim, seconds)
        except DistError:
            raise RunError("the launcher's store is gone: the launcher, or rank 0, ended", LOST_RANK) from None
        quiet = LAUNCHER_TELLS in os.environ
        self._watchdog = Watchdog(connect(self.place, hosts=False), claim, self.claims, self.place.hosts_store, quiet)
        atexit.register(self.close)

    def meshes(self, layout: Layout) -> Meshes:
        """The meshes of `layout`; makes the process group where the script hasn't made one."""
        if layout not in self._meshes:
            kind = self.device.type
            if not dist.is_initialized():
                dist.init_process_group(
                    BACKENDS[kind],
                    store=PrefixStore("planc/group", self.store),
                    rank=self.place.rank,
                    world_size=self.place.world_size,
                    # As transformers 5.24.0: bound for NCCL only, since other backends can't split groups.
                    device_id=self.device if BACKENDS[kind] == "nccl" else None,
                    timeout=COLLECTIVE_TIMEOUT,
                )
            self._meshes[layout] = build_meshes(layout, kind)
        return self._meshes[layout]

    def fail(self, error: BaseException) -> Stopped:
        """Tell the other ranks why everyone stops, and wait until they know. Returns what all of them are told."""
        try:
            stopped = error if isinstance(error, Stopped) else self._tell(error)
        except (DistError, RuntimeError):  # nobody to tell any more
            return Stopped(str(error), getattr(error, "status", LOST_RANK))
        self._stop_watching()
        with suppress(DistError, RuntimeError):
            wait_until_seen(self.store, self.place.rank, self.place.world_size)
        return stopped

    def _tell(self, error: BaseException) -> Stopped:
        if isinstance(error, RunError):
            self._stop_watching()
            return stop(self.store, f"rank {self.place.rank}: {error}", error.status)
        # A collective fails at once where a rank is lost: the watchdog finds out which, and ends this process.
        deadline = monotonic() + VERDICT_SECONDS
        while self._watchdog is not None and monotonic() < deadline:
            sleep(0.05)
        self._stop_watching()
        return stop(self.store, f"rank {self.place.rank}: {type(error).__name__}: {error}", LOST_RANK)

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None

    def close(self) -> None:
        """Leave in order: the others won't take this rank for lost."""
        if self._watchdog is None:
            return
        with suppress(DistError, RuntimeError):
            self.store.set(f"planc/done/{self.place.rank}", "1")
            if self.place.hosts_store:
                self._wait_for_others()
        self._stop_watching()
        if dist.is_initialized():
            dist.destroy_process_group()
        Session.current = None

    def _wait_for_others(self) -> None:
        others = [f"planc/done/{rank}" for rank in self.claims]
        deadline = monotonic() + LEAVE_SECONDS
        while monotonic() < deadline and not self.store.check(others):
            sleep(0.05)


def stop_on_uncaught_errors() -> None:
    """From now on an error that nobody catches tells the other ranks, and ends this one with their status."""
    usual = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        session = Session.current
        if session is None or isinstance(error, KeyboardInterrupt):
            usual(kind, error, traceback)
            return
        stopped = session.fail(error)
        if not isinstance(error, RunError) and str(error) in str(stopped):
            usual(kind, error, traceback)
        if LAUNCHER_TELLS not in os.environ:
            sys.stderr.write(f"planc: {stopped}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(stopped.status)

    sys.excepthook = told
