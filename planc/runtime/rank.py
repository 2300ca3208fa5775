"""What a rank of `planc apply` does when it runs no script: shard, load, run, and report."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from planc.model.choices import Choices
from planc.program.program import Program
from planc.runtime.apply import session
from planc.runtime.errors import RunError
from planc.runtime.memory import in_words
from planc.runtime.pretrained import Prepared, prepare
from planc.runtime.session import LAUNCHER_TELLS, Session

# The batch of `--forward` and `--train`.
BATCH = (1, 16)


@dataclass(frozen=True)
class Job:
    """What to do; the same on every rank. Paths are absolute."""

    model: str
    program: str
    checkpoint: str | None = None
    forward: bool = False
    train: bool = False
    save: str | None = None
    as_json: bool = False
    seed: int = 0
    dtype: str | None = None
    attn_implementation: str | None = None
    experts_implementation: str | None = None

    @property
    def choices(self) -> Choices:
        return Choices(self.dtype, self.attn_implementation, self.experts_implementation)


@dataclass(frozen=True)
class RankReport:
    """One row of the table. Bytes of this rank's tensors, bytes read from files, seconds."""

    rank: int
    device: str
    bytes_held: int
    bytes_read: int
    seconds_applying: float
    seconds_loading: float
    seconds_forward: float | None = None
    seconds_backward: float | None = None
    finite: bool | None = None


def run_job(job: Job) -> int:
    """Do the job on this rank; rank 0 prints the table of all ranks. Raises `RunError`, the same on every rank."""
    with session() as joined:
        checkpoint = Path(job.checkpoint) if job.checkpoint is not None else None
        progress = _progress if joined is None or joined.place.rank == 0 else None
        program = Program.load(Path(job.program))
        prepared = prepare(job.model, program, joined, checkpoint, progress, job.seed, job.choices)
        report = _run(prepared, job)
        if job.save is not None:
            _save(prepared.model, Path(job.save))
        reports = _gather(report, joined)
        if reports and job.as_json:
            print(json.dumps({"format_version": 1, "ranks": [asdict(r) for r in reports]}, indent=2))
        elif reports:
            print(table(reports))
        if joined is not None:
            joined.close()
    return 0


def _progress(done: int, count: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rloading: {done} of {count} tensors" + ("\n" if done == count else ""))


def _run(prepared: Prepared, job: Job) -> RankReport:
    model, joined = prepared.model, prepared.session
    device = joined.device if joined is not None else torch.device("cpu")
    times: dict[str, Any] = {}
    if job.forward or job.train:
        ids = sample(model, job.seed).to(device)
        started = perf_counter()
        with torch.set_grad_enabled(job.train):
            logits = model(input_ids=ids).logits
        times = {"seconds_forward": perf_counter() - started, "finite": bool(logits.isfinite().all())}
        if job.train:
            started = perf_counter()
            logits.float().pow(2).mean().backward()
            times["seconds_backward"] = perf_counter() - started
    return RankReport(
        joined.place.rank if joined is not None else 0,
        str(device),
        prepared.bytes_held,
        prepared.loaded.bytes_read,
        prepared.seconds_applying,
        prepared.seconds_loading,
        **times,
    )


def sample(model: nn.Module, seed: int) -> torch.Tensor:
    """Token ids to run a language model on, the same on every rank. Raises `RunError` for other models."""
    embeddings: Any = getattr(model, "get_input_embeddings", lambda: None)()
    if getattr(embeddings, "num_embeddings", None) is None:
        raise RunError(f"{type(model).__name__} takes no token ids: run it from a script of your own (`-- script.py`)")
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, embeddings.num_embeddings, BATCH, generator=generator)


def _save(model: nn.Module, folder: Path) -> None:
    from planc.runtime.checkpoint import save_pretrained

    save_pretrained(model, folder)


def _gather(report: RankReport, joined: Session | None) -> list[RankReport]:
    """The reports of all ranks, on rank 0 only."""
    if joined is None:
        return [report]
    gathered: list[Any] | None = [None] * joined.place.world_size if joined.place.rank == 0 else None
    dist.gather_object(report, gathered)
    return gathered or []


def table(reports: Sequence[RankReport]) -> str:
    """Ranks as rows."""
    head = ["rank", "device", "holds", "read", "apply", "load"]
    rows = [[str(r.rank), r.device, in_words(r.bytes_held), in_words(r.bytes_read)] for r in reports]
    for row, report in zip(rows, reports, strict=True):
        row.extend((_s(report.seconds_applying), _s(report.seconds_loading)))
    for name in ("forward", "backward"):
        if getattr(reports[0], f"seconds_{name}") is not None:
            head.append(name)
            for row, report in zip(rows, reports, strict=True):
                row.append(_s(getattr(report, f"seconds_{name}")))
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    if any(r.finite is False for r in reports):
        lines.append("the logits are not all finite")
    return "\n".join(lines)


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s"


def main(arguments: Sequence[str]) -> int:
    """`python -m planc.runtime.rank JOB.json`, as the launcher starts it."""
    job = Job(**json.loads(Path(arguments[0]).read_text()))
    try:
        return run_job(job)
    except RunError as error:
        leave(error)


def tell(error: RunError) -> int:
    """Print why the run stopped, unless the launcher does it for all ranks; the exit status."""
    if LAUNCHER_TELLS not in os.environ:
        sys.stderr.write(f"planc: {error}\n")
    return error.status


def leave(error: RunError) -> NoReturn:
    """End this rank at once, with the status of all: a launcher kills those that are slower than the first."""
    status = tell(error)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
