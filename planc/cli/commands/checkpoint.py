"""`planc checkpoint`."""

from pathlib import Path

import click

from planc.cli.output import output_format, print_reports
from planc.cli.status import exit_status
from planc.diagnostics.diagnostic import Report


@click.group()
def command() -> None:
    """Look at checkpoint folders."""


@command.command("check")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("model", required=False)
@output_format
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--trust-remote-code", is_flag=True, help="Let a hub model's own code run to build it.")
@click.option("--no-cache", is_flag=True, help="Build the model's manifest anew.")
def check(
    folder: Path, model: str | None, output_format: str, strict: bool, trust_remote_code: bool, no_cache: bool
) -> int:
    """Does DIR hold every weight that MODEL needs, in the right shape, with nothing left over?

    Only the headers of the files are read. Without MODEL it is the one whose config.json is in DIR.
    """
    from planc.model.errors import ModelError
    from planc.model.sources import load_manifest
    from planc.runtime.checkpoint.checking import check_folder

    name = model if model is not None else str(folder)
    try:
        manifest = load_manifest(name, cache=not no_cache, trust_remote_code=trust_remote_code)
    except ModelError as error:
        raise click.UsageError("\n".join([error.message, *(f"help: {line}" for line in error.help)])) from None
    found = tuple(check_folder(folder, manifest))
    model_class = manifest.file.class_name
    report = Report(found, plan_file=str(folder), model_name=name, model_class=model_class, subject="checkpoint")
    print_reports([report], output_format)
    return exit_status([report], strict)
