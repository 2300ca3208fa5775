"""`planc manifest`."""

import click

from planc.cli.output import output_file, write
from planc.cli.status import OK


@click.command()
@click.argument("model", required=False)
@output_file
@click.option("--list", "list_bundled", is_flag=True, help="List the bundled models, with their hub ids.")
@click.option("--trust-remote-code", is_flag=True, help="Let a hub model's own code run to build it.")
@click.option("--no-cache", is_flag=True, help="Build it anew.")
def command(model: str | None, output: str | None, list_bundled: bool, trust_remote_code: bool, no_cache: bool) -> int:
    """Print or save what planc knows of MODEL: a file that can stand for it."""
    if list_bundled:
        from planc.diagnostics.render.table import table
        from planc.model import bundled

        write(table((name, ", ".join(ids)) for name, ids in sorted(bundled.index().items())), output)
        return OK
    if model is None:
        raise click.UsageError("name a MODEL, or list the bundled ones with --list")
    from planc.model.errors import ModelError
    from planc.model.sources import load_manifest

    try:
        manifest = load_manifest(model, cache=not no_cache, trust_remote_code=trust_remote_code)
    except ModelError as error:
        raise click.UsageError("\n".join([error.message, *(f"help: {line}" for line in error.help)])) from None
    write(manifest.to_json().decode(), output)
    return OK
