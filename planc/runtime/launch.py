"""Start ranks on this machine, and end them together.

The launcher keeps the store that ranks meet in, as torchrun's agent does, so that it can tell all ranks when one was
lost, and say once for all of them why a run stopped.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from types import FrameType
from typing import IO, Any

from planc.runtime.errors import LOST_RANK

# How Python runs a module of planc's on a rank: `-m` alone puts the current folder first on the path, and a file of a
# checkpoint folder that is named like a library would run in its place.
MODULE = ("-P", "-m")
POLL_SECONDS = 0.05
# How long ranks that were told to stop have to do it themselves, and then after SIGTERM.
GRACE_SECONDS = 4.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Ranks:
    """The processes of one run."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, count: int, command: Sequence[str], port: int, extra: Mapping[str, str], output: IO[bytes] | None
    ) -> None:
        for rank in range(count):
            variables = {**os.environ, **extra, **_variables(rank, count, port)}
            variables.setdefault("OMP_NUM_THREADS", "1")
            # A session of its own: Ctrl-C reaches the launcher only, which ends them in order with their children.
            process = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True
            )
            self.processes.append(process)

    def poll(self) -> list[int | None]:
        return [process.poll() for process in self.processes]

    def wait(self, seconds: float) -> bool:
        """Whether all ranks ended within `seconds`."""
        deadline = monotonic() + seconds
        while any(status is None for status in self.poll()):
            if monotonic() > deadline:
                return False
            sleep(POLL_SECONDS)
        return True

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """SIGTERM for those that still run, SIGKILL for those that don't listen."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if process.poll() is None:
                    os.killpg(process.pid, number)
            if self.wait(grace):
                return


def _variables(rank: int, count: int, port: int) -> dict[str, str]:
    # Those that torchrun sets: scripts and `init_process_group("env://")` look for them.
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def launch(count: int, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None = None) -> int:
    """Run `command` on `count` ranks of this machine with `environment` added; the run's exit status.

    The ranks write to `output`, or to this process's stdout. When one rank fails the others are told, and ended when
    they don't do it themselves; SIGINT and SIGTERM end all.
    """
    interrupted: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.append(number)

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    ranks = Ranks()
    try:
        # Listening already while torch is imported: ranks that are faster wait in line.
        with socket.create_server(("127.0.0.1", 0), backlog=max(128, count)) as listening:
            ranks.start(count, command, listening.getsockname()[1], environment, output)
            return _supervise(ranks, _store(listening), interrupted)
    finally:
        ranks.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _store(listening: socket.socket) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = listening.getsockname()[1]
    # The store closes the descriptor that it gets.
    return TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(listening.fileno())
    )


def _supervise(ranks: Ranks, store: Any, interrupted: Sequence[int]) -> int:
    while True:
        if interrupted:
            ranks.end()
            return 128 + interrupted[0]
        statuses = ranks.poll()
        if all(status == 0 for status in statuses):
            return 0
        if any(status not in (0, None) for status in statuses):
            return _stopped(ranks, store)
        sleep(POLL_SECONDS)


def _stopped(ranks: Ranks, store: Any) -> int:
    """Some rank failed: tell the others, give them time to end, and say why."""
    from torch.distributed.distributed_c10d import PrefixStore

    from planc.runtime.agreement import STOP, Stopped, raise_if_stopped, stop

    shared = PrefixStore("/worker/attempt_0", store)
    failed = {rank: status for rank, status in enumerate(ranks.poll()) if status not in (0, None)}
    rank, status = min(failed.items())
    if not shared.check([STOP]):
        stop(shared, f"rank {rank} {_end(status)}", status if status > 0 else LOST_RANK)
    ranks.wait(GRACE_SECONDS)
    ranks.end()
    try:
        raise_if_stopped(shared)
    except Stopped as stopped:
        sys.stderr.write(f"planc: {stopped}\n")
        return stopped.status
    return status if status > 0 else 128 - status


def _end(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
