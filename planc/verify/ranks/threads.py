"""Ranks as threads of this process, each with tensors of its own.

The process group is that of torch's own tests, `torch.testing._internal.distributed.multi_threaded_pg` (torch 2.13.0):
collectives meet in memory, and a plain tensor is really one per rank. Under `LocalTensorMode`, the other way to have
many ranks in one process, a plain tensor passes a collective unchanged, so that a value summed twice goes unseen.
"""

import ctypes
import queue
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, _set_thread_isolation_mode  # type: ignore[attr-defined]
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed import multi_threaded_pg
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup, ThreadLocalWorld

from planc.verify.observing import Observation
from planc.verify.ranks.messages import Messages
from planc.verify.ranks.outcome import Failure, Outcome
from planc.verify.ranks.waiting import Waiting

T = TypeVar("T")
_POLL_SECONDS = 0.05
_DEADLOCK_SECONDS = 5.0
_SECONDS = 120.0
_RELEASED_SECONDS = 30.0
"""For a piece of work, and for the other ranks to end after one failed."""
_Done = queue.SimpleQueue[tuple[int, Any, BaseException | None]]


class RankThreads:
    """`count` ranks as threads, started once; `run` gives them work, one piece at a time.

    Pools of several sizes may live at once, but only one of them may run.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        _World.enter()
        self._start()

    def _start(self) -> None:
        store, hook = HashStore(), sys.excepthook
        self._work: list[queue.SimpleQueue[Callable[[], Any] | None]] = [queue.SimpleQueue() for _ in range(self.count)]
        self._done: _Done = queue.SimpleQueue()
        self._left = threading.Event()
        self._threads = [
            threading.Thread(target=_serve, args=(rank, self.count, store, inbox, self._done, self._left), daemon=True)
            for rank, inbox in enumerate(self._work)
        ]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            _, _, error = self._done.get()
            if error is not None:
                raise error
        sys.excepthook = hook  # every process group prefixes what is printed with its rank

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
        released from theirs, and the outcome is a failure. Threads that don't end then, or within two minutes, are left
        behind, and others take their place.
        """
        _reset()
        for rank, inbox in enumerate(self._work):
            inbox.put(lambda rank=rank: work(rank))  # type: ignore[misc]
        results: dict[int, T] = {}
        failure: Failure | None = None
        watch = _Watch(self._threads)
        waiting = set(range(self.count))
        deadline = time.monotonic() + _SECONDS
        while waiting:
            try:
                rank, result, error = self._done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if failure is None and watch.stuck(waiting):
                    failure = Failure(min(waiting), "", "the ranks wait for each other in different collectives")
                    _release()
                    deadline = time.monotonic() + _RELEASED_SECONDS
                elif time.monotonic() > deadline:
                    self._replace(waiting)
                    failure = failure or Failure(min(waiting), "", f"no end within {_SECONDS:.0f} s", lost=True)
                    break
                continue
            waiting.discard(rank)
            if error is None:
                results[rank] = result
            elif failure is None and not isinstance(error, SystemExit):
                failure = Failure.of(rank, error)
                deadline = time.monotonic() + _RELEASED_SECONDS
        _reset()
        return Outcome(failure=failure) if failure else Outcome(tuple(results[rank] for rank in range(self.count)))

    def _replace(self, waiting: set[int]) -> None:
        """Leave the threads behind, the `waiting` ones to end at their next step, and start others."""
        self._left.set()
        _release()
        for rank, (thread, inbox) in enumerate(zip(self._threads, self._work, strict=True)):
            inbox.put(None)
            if rank in waiting:
                ident = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        self._start()


def _serve(
    rank: int,
    count: int,
    store: HashStore,
    inbox: "queue.SimpleQueue[Callable[[], Any] | None]",
    done: _Done,
    left: threading.Event,
) -> None:
    """What a rank's thread does: work from its inbox, until that says None; `left` when others took its place."""
    try:
        dist.init_process_group("threaded", rank=rank, world_size=count, store=store)
    except Exception as error:
        done.put((rank, None, error))
        return
    done.put((rank, None, None))
    while (work := inbox.get()) is not None:
        try:
            done.put((rank, work(), None))
        except BaseException as error:  # SystemExit is how the group releases a rank from a collective
            if not left.is_set():
                _release()
            done.put((rank, None, error))
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
                Messages.install()
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
    Messages.forget()


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
    def join(self, rank: int, data: Any) -> Any:
        with Waiting.counted():
            return super().join(rank, data)  # type: ignore[no-untyped-call]


class _Watch:
    """Tells when threads have been waiting in the same collectives for too long."""

    def __init__(self, threads: list[threading.Thread]) -> None:
        self._threads = threads
        self._since = time.monotonic()
        self._seen: tuple[int | None, ...] = ()

    def stuck(self, ranks: set[int]) -> bool:
        seen = tuple(Waiting.now.get(self._threads[rank].ident or 0) for rank in sorted(ranks))
        if None in seen or seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > _DEADLOCK_SECONDS
