"""The entry point: finds commands, and turns whatever happens into an exit status.

0 nothing to report, 1 findings of error severity, 2 wrong usage or unreadable input, 3 planc's own failure.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from planc.cli import commands
from planc.cli.command_line import CommandLine
from planc.cli.output import discard_stdout
from planc.cli.status import FAILURE, INTERRUPTED, NO_READER, USAGE


class Commands(click.Group):
    """One command a module of `planc.cli.commands`, called as the module is; imported when it is called or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(f.stem for path in commands.__path__ for f in Path(path).glob("[!_]*.py"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{commands.__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the nearest command for one that doesn't exist."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), 1)
            ctx.fail(f"no command `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="planc", message="planc %(version)s")
def cli() -> None:
    """Check, prove and run parallelism plans of large transformers.

    Exit status: 0 nothing to report, 1 findings of error severity, 2 wrong usage or unreadable input, 3 planc's own
    failure. Findings go to stdout, progress and logs to stderr.
    """


# What the extra `runtime` brings.
_RUNTIME = {"torch", "transformers", "safetensors", "numpy"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line `arguments` (without the program's name) and leave the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by the caller (`>&-`)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (it lives as long as the process)
    try:
        status = run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()  # whoever read the output has left, as in `planc … | head`
        status = NO_READER
    sys.exit(status)


def run(words: Sequence[str]) -> int:
    """Run one command line; the exit status. Only BrokenPipeError comes out of it."""
    try:
        # Not `cli.main`, which takes broken pipes and interrupts for failures of the command.
        with cli.make_context("planc", list(words), obj=CommandLine(words)) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        return _lacking(error)
    except Exception as error:
        return _failed(error)
    return result if isinstance(result, int) else 0


def _lacking(error: ModuleNotFoundError) -> int:
    """The extra `runtime` is optional: without it some commands can't run, which is no failure of planc."""
    library = (error.name or "").partition(".")[0]
    if library not in _RUNTIME:
        return _failed(error)
    click.echo(f"planc: this needs {library}, which isn't installed: pip install 'planc[runtime]'", err=True)
    return USAGE


def _failed(error: Exception) -> int:
    if os.environ.get("PLANC_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    click.echo(
        f"planc failed: {text}\nThis is a bug in planc, please report it; PLANC_TRACEBACK=1 shows where it happened.",
        err=True,
    )
    return FAILURE
