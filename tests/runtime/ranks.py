"""Run a function on several gloo ranks, each a process of its own, and collect what each one returns or raises.

The ranks are forked from a server that has imported torch and transformers already, so that starting some costs well
under a second. Results must be picklable; tensors travel as bytes.
"""

import io
import multiprocessing
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed.tensor", "transformers", "tests.runtime.preload"])


@dataclass(frozen=True)
class Outcome:
    """What became of one rank: what it returned, or the traceback it ended with, its exit status and its stderr."""

    rank: int
    result: Any = None
    failure: str | None = None
    status: int | None = None
    stderr: str = ""


class RanksFailed(AssertionError):  # noqa: N818
    """Some rank failed, or didn't end in time."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_ranks(count: int, function: Callable[..., Any], *args: Any, timeout: float = 120.0) -> list[Any]:
    """What `function(*args)` returns on each of `count` gloo ranks, in rank order.

    `function` must be importable; it finds the default process group initialised. Raises `RanksFailed` with the
    traceback of every rank that failed, or when one isn't done after `timeout` seconds.
    """
    outcomes = start_ranks(count, function, *args, timeout=timeout)
    failed = [o for o in outcomes if o.failure is not None]
    if failed:
        raise RanksFailed("\n".join(f"rank {o.rank} (status {o.status}):\n{o.failure}\n{o.stderr}" for o in failed))
    return [o.result for o in outcomes]


def start_ranks(
    count: int,
    function: Callable[..., Any],
    *args: Any,
    timeout: float = 120.0,
    init: bool = True,
    environment: Mapping[int, Mapping[str, str]] | None = None,
) -> list[Outcome]:
    """As `run_ranks`, but failures are outcomes too. `environment` adds variables to single ranks.

    Without `init` no process group is made: the function does it from the environment.
    """
    port = free_port()
    ranks: dict[int, tuple[Any, Connection]] = {}
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        for rank in range(count):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            variables = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                **((environment or {}).get(rank, {})),
            }  # fmt: skip
            arguments = (theirs, variables, Path(folder, str(rank)), init, function, args)
            process = CONTEXT.Process(target=_rank_main, args=arguments, daemon=True)
            process.start()
            theirs.close()
            ranks[rank] = (process, ours)
        return _collect(ranks, monotonic() + timeout, Path(folder))


def _collect(ranks: dict[int, tuple[Any, Connection]], deadline: float, folder: Path) -> list[Outcome]:
    found: dict[int, tuple[Any, str | None]] = {}
    while len(found) < len(ranks) and (left := deadline - monotonic()) > 0:
        pending = {ours: rank for rank, (_, ours) in ranks.items() if rank not in found}
        for ready in wait(list(pending), timeout=left):
            found[pending[ready]] = _receive(ready)  # type: ignore[index, arg-type]
    for rank, (process, _) in ranks.items():
        if rank not in found:
            process.kill()
            found[rank] = (None, "it was not done in time")
        process.join()
    told = {rank: (folder / str(rank)).read_text() if (folder / str(rank)).exists() else "" for rank in ranks}
    return [Outcome(rank, *found[rank], ranks[rank][0].exitcode, told[rank]) for rank in sorted(ranks)]


def _receive(connection: Connection) -> tuple[Any, str | None]:
    try:
        kind, content = connection.recv()
    except EOFError:
        return None, "it ended without a word"
    if kind == "failed":
        return None, content
    return torch.load(io.BytesIO(content), weights_only=False), None


def _rank_main(
    connection: Connection,
    variables: Mapping[str, str],
    stderr: Path,
    init: bool,
    function: Callable[..., Any],
    args: Any,
) -> None:
    os.environ.update(variables)
    with stderr.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    torch.set_num_threads(1)
    try:
        if init:
            torch.distributed.init_process_group("gloo")
        buffer = io.BytesIO()
        torch.save(function(*args), buffer)
        connection.send(("result", buffer.getvalue()))
    except Exception:
        connection.send(("failed", traceback.format_exc()))
    finally:
        connection.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
