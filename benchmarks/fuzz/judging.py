"""What planc makes of one input: a status that it may have, and within a time."""

import contextlib
import io
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from planc.cli import main

MEMORY = 12 * 2**30
KNOWN = (0, 1, 2)


class TooSlowError(BaseException):
    """Raised where an input takes longer than it may; nothing that planc catches."""


@dataclass(frozen=True)
class Outcome:
    """What came of a command: `fault` is empty where it ended as commands may."""

    status: int
    output: str
    errors: str
    seconds: float
    fault: str = ""


def run(words: Sequence[str], limit: float) -> Outcome:
    """Run one command line in this process, for at most `limit` seconds of the processor."""
    out, err = io.StringIO(), io.StringIO()
    status, fault, start = -1, "", time.process_time()
    try:
        with alarm(limit), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main.run(list(words))
            out.getvalue().encode()
    except TooSlowError:
        fault = f"more than {limit:g} s"
    except BaseException:
        fault = traceback.format_exc(limit=-3)
    if not fault and status not in KNOWN:
        fault = f"status {status}: {err.getvalue()}"
    return Outcome(status, out.getvalue(), err.getvalue(), time.process_time() - start, fault)


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in what runs inside after so many seconds of the processor."""

    def ring(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory() -> None:
    """Let this process have no more than a laptop has."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def check_file(content: bytes, folder: Path, limit: float) -> Outcome:
    """`planc check` of a model's file with this content, under a plan of tensor parallelism."""
    path = folder / "config.json"
    path.write_bytes(content)
    return run(["check", "--no-cache", "--tp-size", "2", str(path)], limit)
