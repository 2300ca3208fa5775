"""`planc manifest`."""

import click

from planc.cli.output import output_file, write


@click.command()
@click.argument("model")
@output_file
@click.option("--trust-remote-code", is_flag=True, help="Let a hub model's own code run to build it.")
@click.option("--no-cache", is_flag=True, help="Build it anew.")
def command(model: str, output: str | None, trust_remote_code: bool, no_cache: bool) -> int:
    """Print or save what planc knows of MODEL: a file that can stand for it."""
    from planc.model.errors import ModelError
    from planc.model.sources import load_manifest

    try:
        manifest = load_manifest(model, cache=not no_cache, trust_remote_code=trust_remote_code)
    except ModelError as error:
        raise click.UsageError("\n".join([error.message, *(f"help: {line}" for line in error.help)])) from None
    write(manifest.to_json().decode(), output)
    return 0
