"""Ranks as real processes that meet through gloo."""

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from planc.verify.observing import Observation
from planc.verify.ranks.outcome import Failure, InPhaseError, Outcome
from planc.verify.ranks.wire import decode, encode

_SECONDS = 120.0
_POLL_SECONDS = 0.2


class RankProcesses:
    """`count` ranks as children of this process, forked anew for every piece of work.

    They inherit the model, so that nothing is sent to them; what they observed comes back as safetensors.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def close(self) -> None:
        """Nothing outlives a piece of work."""

    def observe(self, work: Callable[[int], Observation]) -> Outcome[Observation]:
        with tempfile.TemporaryDirectory(prefix="planc-ranks-") as folder:
            children = [_fork(rank, self.count, Path(folder) / "store", work) for rank in range(self.count)]
            try:
                return _collect(children)
            finally:
                for pid, pipe in children:
                    os.close(pipe)
                    _end(pid)


def _fork(rank: int, count: int, store: Path, work: Callable[[int], Observation]) -> tuple[int, int]:
    """A child's process id, and the pipe on which it sends its message."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = 1
    try:
        os.close(reading)
        message = _work(rank, count, store, work)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(message)
        status = 0
    finally:
        os._exit(status)  # not the parent's clean-up


def _work(rank: int, count: int, store: Path, work: Callable[[int], Observation]) -> bytes:
    # The pool of OpenMP's threads isn't forked with the process: a kernel that waits for them would wait for ever.
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            rank=rank,
            world_size=count,
            store=FileStore(str(store), count),
            timeout=timedelta(seconds=_SECONDS),
        )
        return encode(work(rank))
    except BaseException as error:  # reported by the parent
        failure = Failure.of(rank, error)
        return encode(InPhaseError(failure.phase, failure.error, failure.lost))


def _collect(children: list[tuple[int, int]]) -> Outcome[Observation]:
    received = {pipe: bytearray() for _, pipe in children}
    rank_of = {pipe: rank for rank, (_, pipe) in enumerate(children)}
    results: dict[int, Observation] = {}
    deadline = time.monotonic() + _SECONDS
    while received:
        if time.monotonic() > deadline:
            rank = min(rank_of[pipe] for pipe in received)
            return Outcome(failure=Failure(rank, "", f"not all ranks ended within {_SECONDS:.0f} s", lost=True))
        for pipe in select.select(list(received), [], [], _POLL_SECONDS)[0]:
            if part := os.read(pipe, 1 << 20):
                received[pipe] += part
                continue
            message, rank = decode(bytes(received.pop(pipe))), rank_of[pipe]
            if isinstance(message, InPhaseError):
                return Outcome(failure=Failure.of(rank, message))
            results[rank] = message
    return Outcome(tuple(results[rank] for rank in range(len(children))))


def _end(pid: int) -> None:
    """End one child, whether or not it is done."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
