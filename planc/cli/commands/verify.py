"""`planc verify`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import output_format, print_reports
from planc.cli.progress import progress
from planc.cli.status import exit_status

if TYPE_CHECKING:
    from planc.verify.outcome import VerifyReport


@click.command()
@inputs
@output_format
@click.option(
    "--ranks",
    type=click.Choice(("threads", "gloo")),
    default="threads",
    show_default=True,
    help="Simulate ranks in this process, or start real ones.",
)
@click.option("--strict", is_flag=True, help="An unknown verdict fails too.")
def command(given: Inputs, output_format: str, ranks: str, strict: bool) -> int:
    """Prove plans on a small copy of the model.

    The model is shrunk to a copy that keeps its structure, run whole, and run on ranks under the plan: outputs, every
    gradient and the parameters after two SGD steps must agree within rounding. No GPU and no checkpoint is needed.
    The verdict is on planc's own runtime, in inference and training (pipelines: inference alone); findings beside it
    tell what transformers' own does otherwise. Verdicts go to stderr, findings to stdout.
    """
    plans = given.plans or (None,)
    verdicts = []
    with progress(len(plans)) as begin:
        for plan in plans:
            begin(plan or given.model or "")
            verdicts.append(_verify(given, plan, ranks))
    reports = [verdict.report for verdict in verdicts]
    for verdict in verdicts:
        click.echo(f"{_name(verdict)}: {summary(verdict)}", err=True)
    print_reports(reports, output_format)
    return exit_status(reports, strict)


def _verify(given: Inputs, plan: str | None, ranks: Any) -> "VerifyReport":
    from planc.analysis import refutes
    from planc.verify.outcome import Verdict, VerifyReport
    from planc.verify.session import verify

    analysis = given.analyse(plan)
    if analysis.context is None:
        return VerifyReport(Verdict.REFUTED if refutes(analysis.report) else Verdict.UNKNOWN, analysis.report)
    return verify(analysis.context, analysis.report, ranks=ranks)


def _name(verdict: "VerifyReport") -> str:
    return verdict.report.plan_file or verdict.report.model_name or "plan"


def summary(verdict: "VerifyReport") -> str:
    """The verdict in a line, with what it rests on."""
    parts = [verdict.verdict.value]
    if verdict.verdict.value == "proved":
        parts[0] += f" for planc's runtime, in inference{'' if verdict.inference_only else ' and training'}"
    if verdict.tried_at is not None:
        sizes = {name: size for name, size in asdict(verdict.tried_at).items() if isinstance(size, int) and size > 1}
        parts.append(
            f"tried at {', '.join(f'{name}={size}' for name, size in sizes.items())} in place of its own sizes"
        )
    if verdict.inference_only:
        parts.append("pipeline stages have no backward")
    elif verdict.seen:
        parts.append(f"every parameter's gradient stands out at least {verdict.seen:.0e} times above rounding")
    if len(verdict.experts) > 1:
        parts.append(f"experts by {', '.join(verdict.experts)}")
    if verdict.unseen:
        parts.append(f"{len(verdict.unseen)} parameters move nothing on such inputs")
    if verdict.seconds:
        parts.append(f"{sum(verdict.seconds.values()):.1f} s")
    return "; ".join(parts)
