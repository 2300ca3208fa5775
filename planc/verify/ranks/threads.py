"""Ranks as threads of this process, each with tensors of its own.

The process group is that of torch's own tests, `torch.testing._internal.distributed.multi_threaded_pg` (torch 2.13.0):
collectives meet in memory, and a plain tensor is really one per rank. Under `LocalTensorMode`, the other way to have
many ranks in one process, a plain tensor passes a collective unchanged, so that a value summed twice goes unseen.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, _set_thread_isolation_mode  # type: ignore[attr-defined]
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed import multi_threaded_pg
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup, ThreadLocalWorld

from planc.verify.observing import Observation
from planc.verify.ranks.outcome import Failure, Outcome

T = TypeVar("T")
_POLL_SECONDS = 0.05
_DEADLOCK_SECONDS = 5.0


class RankThreads:
    """`count` ranks as threads, started once; `run` gives them work, one piece at a time.

    Pools of several sizes may live at once, but only one of them may run.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._store = HashStore()
        self._work: list[queue.SimpleQueue[Callable[[], Any] | None]] = [queue.SimpleQueue() for _ in range(count)]
        self._done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        _World.enter()
        self._threads = [threading.Thread(target=self._serve, args=(rank,), daemon=True) for rank in range(count)]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            _, _, error = self._done.get()
            if error is not None:
                raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        for work in self._work:
            work.put(None)
        for thread in self._threads:
            thread.join(timeout=5)
        _World.leave()

    def observe(self, work: Callable[[int], Observation]) -> Outcome[Observation]:
        return self.run(work)

    def run(self, work: Callable[[int], T]) -> Outcome[T]:
        """Call `work(rank)` on every rank at once.

        When one rank raises, or when all that still run wait in collectives that can't complete, the others are
        released from theirs, and the outcome is a failure.
        """
        _reset()
        for rank, inbox in enumerate(self._work):
            inbox.put(lambda rank=rank: work(rank))  # type: ignore[misc]
        results: dict[int, T] = {}
        failure: Failure | None = None
        watch = _Watch(self._threads)
        waiting = set(range(self.count))
        while waiting:
            try:
                rank, result, error = self._done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if failure is None and watch.stuck(waiting):
                    failure = Failure(min(waiting), "", "the ranks wait for each other in different collectives")
                    _release()
                continue
            waiting.discard(rank)
            if error is None:
                results[rank] = result
            elif failure is None and not isinstance(error, SystemExit):
                failure = Failure.of(rank, error)
        _reset()
        return Outcome(failure=failure) if failure else Outcome(tuple(results[rank] for rank in range(self.count)))

    def _serve(self, rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=self.count, store=self._store)
        except Exception as error:
            self._done.put((rank, None, error))
            return
        self._done.put((rank, None, None))
        while (work := self._work[rank].get()) is not None:
            try:
                self._done.put((rank, work(), None))
            except BaseException as error:  # SystemExit is how the group releases a rank from a collective
                _release()
                self._done.put((rank, None, error))
            finally:
                del work
        dist.destroy_process_group()


class _World:
    """The thread-local world of process groups, in place while any pool lives."""

    users: ClassVar[int] = 0
    before: ClassVar[Any] = None
    lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def enter(cls) -> None:
        with cls.lock:
            if cls.users == 0:
                cls.before = distributed_c10d._world
                distributed_c10d._world = ThreadLocalWorld()  # type: ignore[assignment]
                multi_threaded_pg.Collective = _WatchedCollective  # type: ignore[misc]
                _set_thread_isolation_mode(True)
            cls.users += 1

    @classmethod
    def leave(cls) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.users == 0:
                distributed_c10d._world = cls.before
                _set_thread_isolation_mode(False)


def _reset() -> None:
    """Forget collectives that were left unfinished."""
    ProcessLocalGroup.reset()  # type: ignore[no-untyped-call]


def _release() -> None:
    """Wake every rank that waits in a collective; it raises SystemExit."""
    ProcessLocalGroup._terminate.set()
    with ProcessLocalGroup._coll_lock:
        collectives = list(ProcessLocalGroup._cur_coll_on_pgs.values())
    for collective in collectives:
        for condition in (collective._start_cond, collective._done_cond):
            with condition:
                condition.notify_all()


class _WatchedCollective(multi_threaded_pg.Collective):
    """Remembers which threads wait for the others, and for how many collectives each has waited."""

    waiting: ClassVar[dict[int, int]] = {}
    entered: ClassVar[Counter[int]] = Counter()

    def join(self, rank: int, data: Any) -> Any:
        thread = threading.get_ident()
        self.entered[thread] += 1
        self.waiting[thread] = self.entered[thread]
        try:
            return super().join(rank, data)  # type: ignore[no-untyped-call]
        finally:
            self.waiting.pop(thread, None)


class _Watch:
    """Tells when threads have been waiting in the same collectives for too long."""

    def __init__(self, threads: list[threading.Thread]) -> None:
        self._threads = threads
        self._since = time.monotonic()
        self._seen: tuple[int | None, ...] = ()

    def stuck(self, ranks: set[int]) -> bool:
        waiting = _WatchedCollective.waiting
        seen = tuple(waiting.get(self._threads[rank].ident or 0) for rank in sorted(ranks))
        if None in seen or seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > _DEADLOCK_SECONDS
