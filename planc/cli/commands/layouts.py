"""`planc layouts`."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from planc.cli.inputs import Inputs, gpus_per_node, inputs
from planc.cli.output import output_file, print_reports, write
from planc.cli.progress import progress
from planc.cli.status import FOUND, OK, exit_status

if TYPE_CHECKING:
    from planc.check.legal_layouts import LegalLayout

MOST_RANKS = 1 << 14
AXES = ("pp", "dp_replicate", "fsdp", "tp", "ep")


@click.command()
@inputs
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@gpus_per_node
@output_file
def command(given: Inputs, output_format: str, gpus_per_node: int | None, output: str | None) -> int:
    """List the layouts that MODEL takes on --world-size N ranks, the lightest ones first.

    Each one is judged by the rules of `planc check`. A size that is given is kept. Exit status 1 where there is none.
    """
    from planc.check.legal_layouts import candidates, legal_layouts

    world_size = given.settings.world_size
    if world_size is None:
        raise click.UsageError("say how many ranks there are: --world-size N")
    if world_size > MOST_RANKS:
        raise click.UsageError(f"{world_size:,} ranks are too many to go through; the most are {MOST_RANKS:,}")
    analysis = replace(given, settings=replace(given.settings, rules=False, gpus_per_node=gpus_per_node)).analyse(
        given.plan
    )
    if analysis.context is None or not analysis.report.ok:
        print_reports([analysis.report], "text")
        return exit_status([analysis.report])
    fixed = {name: size for name, size in given.sizes.items() if size is not None}
    layouts = list(candidates(analysis.context, world_size, fixed))
    with progress(len(layouts)) as begin:
        found = legal_layouts(analysis.context, layouts, begin)
    name = analysis.report.model_name
    write(_as_json(found, name, world_size) if output_format == "json" else _as_text(found, name, world_size), output)
    return OK if found else FOUND


def _as_json(found: "list[LegalLayout]", model: str, world_size: int) -> str:
    layouts = [
        {
            **legal.layout.to_json(),
            "batches": legal.layout.dp_size,
            "expert_copies": _copies(legal),
            "bytes_per_rank": legal.bytes_per_rank,
            "warnings": list(legal.warnings),
        }
        for legal in found
    ]
    content = {"format_version": 1, "model": model, "world_size": world_size, "layouts": layouts}
    return json.dumps(content, indent=2) + "\n"


def _as_text(found: "list[LegalLayout]", model: str, world_size: int) -> str:
    if not found:
        return f"{model} takes no layout of {world_size} ranks; `planc check` with the sizes says why\n"
    from planc.diagnostics.render.table import table
    from planc.diagnostics.units import gigabytes

    head = [*AXES, "batches", "expert copies", "a rank holds", "warnings"]
    rows = [
        [
            *(str(getattr(legal.layout, f"{axis}_size")) for axis in AXES),
            str(legal.layout.dp_size),
            str(_copies(legal) or "-"),
            gigabytes(legal.bytes_per_rank),
            ", ".join(legal.warnings) or "-",
        ]
        for legal in found
    ]
    return f"{model}: {len(found)} layouts of {world_size} ranks\n\n{table(rows, head, right=range(len(head)))}"


def _copies(legal: "LegalLayout") -> int | None:
    """How many copies of the expert set there are; None where experts aren't dispatched to."""
    layout = legal.layout
    return layout.efsdp_size * layout.dp_replicate_size if layout.ep_size > 1 else None
