"""`planc apply`."""

import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planc.analysis import PlanError
from planc.api import lowered
from planc.cli.inputs import Inputs, inputs
from planc.cli.output import write
from planc.cli.status import OK, USAGE, exit_status
from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen
from planc.model.choices import AUTO, DTYPES, Choices, legal_dtype
from planc.model.errors import ModelError

if TYPE_CHECKING:
    from planc.program.program import Program
    from planc.runtime.rank import Job

SCRIPT = "planc.script"


class WithScript(click.Command):
    """A command whose words after `--` are a script of the user's, with its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[SCRIPT], args = args[place + 1 :], args[:place]
            if not ctx.meta[SCRIPT]:
                ctx.fail("`--` must be followed by a script")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- SCRIPT ARGS...]"]


def _known(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name of an implementation that transformers knows; raises click.BadParameter with those that it does."""
    if value is not None:
        from planc.model.building.choosing import require_legal

        try:
            require_legal(Choices(**{str(param.name): value}))
        except ModelError as error:
            raise click.BadParameter(error.message, ctx, param) from None
    return value


@click.command(cls=WithScript)
@inputs
@click.option("--checkpoint", type=click.Path(), metavar="DIR", help="Load the weights of this folder.")
@click.option(
    "--dtype",
    type=click.Choice((AUTO, *DTYPES)),
    default=AUTO,
    show_default=True,
    help="Of the parameters; `auto` is the config's, else the checkpoint's.",
)
@click.option("--attn-implementation", callback=_known, metavar="NAME", help="How attention is computed (`sdpa`, …).")
@click.option(
    "--experts-implementation", callback=_known, metavar="NAME", help="How experts are computed (`grouped_mm`, …)."
)
@click.option("--random-weights", is_flag=True, help="Random weights, where MODEL is a folder with some.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random weights and of the sample batch.")
@click.option(
    "--nproc", type=click.IntRange(min=1), metavar="N", help="Start N ranks (default: what the layout needs)."
)
@click.option("--forward", is_flag=True, help="Run a forward on a sample batch.")
@click.option("--train", is_flag=True, help="Run a forward and a backward on a sample batch.")
@click.option("--save", type=click.Path(), metavar="DIR", help="Save an ordinary checkpoint there.")
@click.option("--json", "as_json", is_flag=True, help="Print the table of ranks as JSON.")
def command(given: Inputs, checkpoint: str | None, random_weights: bool, nproc: int | None, **options: Any) -> int:
    """Run a plan: shard the model over ranks, load its weights, and say what each rank holds.

    Under torchrun this process is one of the ranks; by itself it starts them on this machine. The plan is checked and
    compiled before any rank starts. After `--`, a script that calls `planc.from_pretrained` or `planc.apply` runs on
    each rank and finds the compiled program there, and the dtype and the implementations that were chosen here.
    """
    if nproc is not None and "RANK" in os.environ:
        raise click.UsageError("--nproc starts ranks, but a launcher (RANK is set) has started this one already")
    started = int(os.environ["WORLD_SIZE"]) if os.environ.get("WORLD_SIZE", "").isdigit() else nproc
    options["dtype"] = legal_dtype(options["dtype"])
    world_size = given.settings.world_size or started
    given = replace(given, settings=replace(given.settings, world_size=world_size, dtype=options["dtype"]))
    report, program, faults = compiled(given)
    if program is None:
        status = exit_status([report]) or USAGE
        print_refusal(report, faults)
        return refuse_everywhere(status, faults)
    if report.diagnostics:
        click.echo(render("text", [report], Screen.of(sys.stderr)), err=True, nl=False)
    model = given.model or program.model.name
    folder = folder_with_weights(model, checkpoint, random_weights)
    script = click.get_current_context().meta.get(SCRIPT)
    if script is None and "RANK" not in os.environ and (status := refuse_too_large(report, program.layout.world_size)):
        return status
    if script is None and folder is None:
        click.echo("no checkpoint was named: the weights are random", err=True)
    return start(model, program, folder, script, options)


def refuse_too_large(report: Report, ranks: int) -> int:
    """USAGE, with a message, when ranks that share this machine's memory can't hold the model."""
    from torch import device

    from planc.runtime import memory
    from planc.runtime.errors import RunError
    from planc.runtime.mesh import device_type
    from planc.runtime.rank import tell

    if device_type() != "cpu":
        return OK
    try:
        memory.refuse_too_large(report.coverage.bytes_per_rank, device("cpu"), ranks)
    except RunError as error:
        return tell(error)
    return OK


def compiled(given: Inputs) -> "tuple[Report, Program | None, str]":
    """The findings, the program unless there are errors, and in a sentence why there is none."""
    from planc.program.errors import ProgramError

    analysis = given.analyse(given.plan)
    try:
        return analysis.report, lowered(analysis), ""
    except (PlanError, ProgramError) as error:
        return analysis.report, None, str(error)


def print_refusal(report: Report, faults: str) -> None:
    """The same report as `planc check`, and what only compiling found."""
    if report.diagnostics:
        write(render("text", [report], Screen.of(sys.stdout)))
    if report.ok:
        click.echo(f"planc: {faults}", err=True)


def refuse_everywhere(status: int, faults: str) -> int:
    """Under a launcher, tell the other ranks: theirs may be another plan."""
    if "RANK" in os.environ:
        from planc.runtime.errors import RunError
        from planc.runtime.rank import leave
        from planc.runtime.session import Place, Session

        try:
            place = Place.from_environment()
            if place is not None:
                leave(Session.open(place).fail(RunError(faults, status)))
        except RunError as error:
            leave(error)
    return status


def folder_with_weights(model: str, checkpoint: str | None, random_weights: bool) -> str | None:
    """The checkpoint folder: the one named, else MODEL's own."""
    if random_weights:
        if checkpoint is not None:
            raise click.UsageError("--checkpoint and --random-weights exclude each other")
        return None
    if checkpoint is None and Path(model).is_dir():
        checkpoint = model
    return str(Path(checkpoint).absolute()) if checkpoint is not None else None


def start(
    model: str, program: "Program", checkpoint: str | None, script: list[str] | None, options: dict[str, Any]
) -> int:
    """Become a rank, or start the ranks."""
    from planc.runtime.rank import Job

    with tempfile.TemporaryDirectory(prefix="planc-") as folder:
        path = Path(folder, "program.json")
        program.save(path)
        job = Job(str(Path(model).absolute()) if Path(model).exists() else model, str(path), checkpoint, **options)
        if "RANK" in os.environ:
            return become_rank(job, script)
        return start_ranks(job, program.layout.world_size, script, Path(folder))


def become_rank(job: "Job", script: list[str] | None) -> int:
    """This process is a rank that torchrun started."""
    from planc.runtime.apply import PROGRAM_VARIABLE
    from planc.runtime.errors import RunError
    from planc.runtime.rank import leave, run_job

    if script is not None:
        import subprocess

        environment = {**os.environ, PROGRAM_VARIABLE: job.program, **job.choices.to_environment()}
        return subprocess.run([sys.executable, *script], env=environment).returncode
    try:
        return run_job(job)
    except RunError as error:
        leave(error)


def start_ranks(job: "Job", count: int, script: list[str] | None, folder: Path) -> int:
    """Start the ranks on this machine and wait for them."""
    from planc.runtime.launch import MODULE, launch

    path = folder / "job.json"
    path.write_text(json.dumps(asdict(job)))
    arguments = script if script is not None else [*MODULE, "planc.runtime.rank", str(path)]
    environment = {"PLANC_PROGRAM": job.program, "PLANC_LAUNCHER_TELLS": "1", **job.choices.to_environment()}
    return launch(count, [sys.executable, *arguments], environment)
