"""`planc demo`."""

import json
import sys
import tempfile
from pathlib import Path

import click

from planc.analysis import Given, Settings, analyse
from planc.cli.output import write
from planc.cli.status import FAILURE, OK
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen

BROKEN = """\
model: qwen3-30b-a3b
tp_size: 8
fsdp_size: 2
ep_size: 4
tp_plan:
  model.layers.*.self_attn.q_prj: colwise
"""
MENDED = """\
model: qwen3-30b-a3b
tp_size: 2
fsdp_size: 2
ep_size: 4
"""
# What float32 sums in another order may differ by.
TOLERANCE = 1e-4


@click.command()
def command() -> int:
    """A broken plan and what planc says of it, the mended one, and four CPU ranks that run it. Under a minute."""
    title("A plan with faults")
    write(BROKEN + "\n")
    write(checked("broken.yaml", BROKEN))
    title("Mended")
    write(MENDED + "\n")
    write(checked("mended.yaml", MENDED))
    title("Who holds what")
    write(picture())
    title("A small copy of the model on four CPU ranks, against one process")
    return run_ranks()


def title(text: str) -> None:
    click.secho(f"\n{text}\n{'-' * len(text)}\n", bold=True)


def checked(name: str, text: str) -> str:
    """What `planc check` says of a plan with this text."""
    from planc.syntax.parser import parse_text

    plan, _ = parse_text(text, name)
    report = analyse(plan, Given(), Settings()).report
    return render("text", [report], Screen.of(sys.stdout))


def picture() -> str:
    """The rank picture of the mended plan."""
    from planc.layouts.layout import Layout
    from planc.layouts.picture import picture as draw
    from planc.layouts.render_text import render_text

    return render_text(draw(Layout(tp_size=2, fsdp_size=2, ep_size=4), 128))


def run_ranks() -> int:
    """Run the mended plan on four ranks of this machine, and compare."""
    from planc.runtime.launch import MODULE, launch

    with tempfile.TemporaryDirectory(prefix="planc-") as folder:
        plan = Path(folder, "mended.yaml")
        plan.write_text(MENDED)
        told = Path(folder, "told")
        with told.open("wb") as output:
            environment = {"PLANC_LAUNCHER_TELLS": "1", "HF_HUB_OFFLINE": "1"}
            command = [sys.executable, *MODULE, "planc.runtime.demo", str(plan)]
            status = launch(4, command, environment, output)
        if status != OK:
            return status
        rows = json.loads(told.read_text())
    for rank, (batch, held, whole, error) in enumerate(rows):
        share = f"{held:,} of {whole:,} parameters"
        click.echo(f"rank {rank}: batch B{batch}, holds {share}, logits within {error:.0e} of one process")
    return OK if all(error < TOLERANCE for *_, error in rows) else FAILURE
