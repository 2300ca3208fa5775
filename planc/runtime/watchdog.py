"""A thread on each rank that ends the process when another rank stops the run, or is gone."""

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store

from planc.runtime.agreement import Claim, Stopped, raise_if_stopped, stop, wait_until_seen
from planc.runtime.errors import LOST_RANK

POLL_SECONDS = 0.2
# A neighbour on another machine that gave no sign of life for this long is gone. Long, since a thread can starve.
SILENT_SECONDS = 60.0
# How long a rank that hosts the store stays for the others to read why everyone stops.
SEEN_SECONDS = 5.0
# A process that is gone may just have said that it is done: look once more before calling it lost.
SETTLE_SECONDS = 0.5


def host_identity() -> str:
    """Equal for two processes only if they can see each other's process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"unknown/{os.getpid()}"


def is_alive(pid: int) -> bool:
    """Whether a process of this machine still runs (one that ended but wasn't waited for doesn't)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


class Watchdog:
    """Watches the other ranks until `close`.

    On this machine a lost process shows at once; of the ranks elsewhere each one watches the next one's sign of life.
    The store is a connection of its own: the main thread may be waiting on the other.
    """

    def __init__(
        self, store: Store, own: Claim, claims: Mapping[int, Claim], hosts_store: bool = False, quiet: bool = False
    ) -> None:
        self._store, self._own, self._hosts_store, self._quiet = store, own, hosts_store, quiet
        self._local = {rank: c.pid for rank, c in claims.items() if c.host == own.host and rank != own.rank}
        following = claims[(own.rank + 1) % len(claims)]
        self._next = following.rank if following.host != own.host else None
        self._closed = threading.Event()
        self._done: set[int] = set()
        self._host_may_leave = False
        self._beats, self._last_beat, self._heard = 0, b"", monotonic()
        self._thread = threading.Thread(target=self._watch, name="planc-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; this rank says so to the others first (`Session.close`)."""
        self._closed.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            try:
                self._look()
            except Stopped as stopped:
                self._end(stopped)
            except (DistError, RuntimeError, OSError):
                if not self._closed.is_set():
                    self._lost_store()
                return

    def _look(self) -> None:
        raise_if_stopped(self._store)
        self._host_may_leave = self._host_may_leave or self._store.check(["planc/done/0"])
        for rank, pid in self._local.items():
            if rank not in self._done and not is_alive(pid) and not self._is_done(rank):
                raise stop(self._store, f"rank {rank} (process {pid}) ended without a word", LOST_RANK)
        if self._next is not None:
            self._beat(self._next)

    def _is_done(self, rank: int) -> bool:
        """Whether a rank that is gone ended well. Raises `Stopped` when it told why it didn't."""
        self._closed.wait(SETTLE_SECONDS)
        raise_if_stopped(self._store)
        if self._store.check([f"planc/done/{rank}"]):
            self._done.add(rank)
        return rank in self._done

    def _beat(self, following: int) -> None:
        self._beats += 1
        self._store.set(f"planc/beat/{self._own.rank}", str(self._beats))
        if following in self._done or not self._store.check([f"planc/beat/{following}"]):
            return
        beat = self._store.get(f"planc/beat/{following}")
        if beat != self._last_beat:
            self._last_beat, self._heard = beat, monotonic()
        elif monotonic() - self._heard > SILENT_SECONDS and not self._is_done(following):
            raise stop(self._store, f"rank {following} gave no sign of life for {SILENT_SECONDS:.0f} s", LOST_RANK)

    def _lost_store(self) -> None:
        # Rank 0 may host the store and end first, when it is through with its work.
        if not self._host_may_leave:
            self._end(Stopped("the launcher's store is gone: the launcher, or rank 0, ended", LOST_RANK))

    def _end(self, stopped: Stopped) -> None:
        if self._closed.is_set():
            return
        with suppress(DistError, RuntimeError, OSError):  # the store may be what was lost
            # The store must outlive the last rank that reads from it.
            seconds = SEEN_SECONDS if self._hosts_store else 0.0
            wait_until_seen(self._store, self._own.rank, self._own.world_size, seconds)
        if not self._quiet:
            sys.stderr.write(f"planc: {stopped}\n")
        sys.stderr.flush()
        # The main thread may be inside a collective that never ends: no exception would reach it.
        os._exit(stopped.status)
