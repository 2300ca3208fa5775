"""`planc resolve`."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import output_file, printable, write
from planc.cli.status import exit_status
from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.syntax.plan import PlanKind, PlanRule

PLANS: tuple[PlanKind, ...] = ("tp", "ep", "fsdp")


@click.command()
@inputs
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@output_file
def command(given: Inputs, output_format: str, output: str | None) -> int:
    """Show what every module and parameter gets, and from which rule."""
    given = replace(given, settings=replace(given.settings, rules=False))
    analysis = given.analyse(given.plan)
    status = exit_status([analysis.report])
    if analysis.report.diagnostics:
        click.echo(render("text", [analysis.report], Screen.of(sys.stderr)), err=True, nl=False)
    if analysis.context is None or status:
        return status
    resolved = analysis.context.resolved
    write(as_json(resolved) if output_format == "json" else printable(as_text(resolved, analysis.report)), output)
    return status


def as_json(resolved: ResolvedPlan) -> str:
    """`{"format_version": 1, "tp": {NAME: STYLE}, "ep": {…}, "fsdp": {…}}`."""
    plans = {kind: {name: a.style.text for name, a in resolved.plan(kind).items()} for kind in PLANS}
    return json.dumps({"format_version": 1, **plans}, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class _Row:
    """Names that are alike but for their layer numbers and that got the same from the same rule."""

    name: str
    rule: PlanRule
    hides: tuple[PlanRule, ...]


def as_text(resolved: ResolvedPlan, report: Report) -> str:
    """A table a plan; parameters that only follow their module's rule are left out."""
    sizes = ", ".join(f"{name}={value}" for name, value in report.layout.items())
    lines = [f"{report.model_name}: {sizes}", ""]
    for kind in PLANS:
        rows = _rows(resolved.plan(kind))
        lines += [f"{kind}_plan: {_state(kind, resolved)}", *(f"  {line}" for line in _table(rows)), ""]
    return "\n".join(lines)


def _state(kind: PlanKind, resolved: ResolvedPlan) -> str:
    assignments = resolved.plan(kind)
    if assignments:
        modules = sum(not a.is_parameter for a in assignments.values())
        return f"{modules} modules, {len(assignments) - modules} parameters"
    if resolved.rules.get(kind) and not any(resolved.matches.get(rule) for rule in resolved.rules[kind]):
        return "its rules name nothing in this model"
    return "off at these sizes" if resolved.rules.get(kind) else "no rules"


def _rows(assignments: Mapping[str, Assignment]) -> dict[_Row, list[str]]:
    from planc.syntax.matching import generic_name

    rows: dict[_Row, list[str]] = {}
    for name, assignment in assignments.items():
        if not assignment.by_module:
            row = _Row(generic_name(name), assignment.rule, assignment.hides)
            rows.setdefault(row, []).append(name)
    return rows


def _table(rows: dict[_Row, list[str]]) -> list[str]:
    from planc.diagnostics.render.table import table

    cells = [(row.name, row.rule.style.text, f"{len(names)}x", _provenance(row)) for row, names in rows.items()]
    return table(cells, right=(2,)).splitlines()


def _provenance(row: _Row) -> str:
    hidden = ", ".join(f"{rule.style.text} of {_place(rule)}" for rule in reversed(row.hides))
    return _place(row.rule) + (f", hides {hidden}" if hidden else "")


def _place(rule: PlanRule) -> str:
    return f"{rule.span.file}:{rule.span.line}"
