"""Options and arguments that several commands share."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from planc.analysis import Analysis, Given, Settings, analyse
from planc.cli.command_line import CommandLine
from planc.layouts.nodes import MOST_GPUS
from planc.syntax.fields import TARGETS
from planc.syntax.limits import MAX_DIGITS

Command = Callable[..., Any]
SIZES = {
    "tp_size": "Ranks that split the dense modules.",
    "ep_size": "Ranks that hold distinct blocks of experts; adds no process.",
    "fsdp_size": "Ranks that shard parameters by FSDP2.",
    "dp_replicate_size": "Replicas of the FSDP group.",
    "pp_size": "Pipeline stages.",
}
YAML = (".yaml", ".yml")


class SizeType(click.IntRange):
    """A whole number from `least` on, with at most as many digits as a plan file may have."""

    def __init__(self, least: int | None = None) -> None:
        super().__init__(least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if len(str(abs(number))) > MAX_DIGITS:
            self.fail(f"it has more than {MAX_DIGITS} digits.", param, ctx)
        return number


gpus_per_node = click.option(
    "--gpus-per-node", type=click.IntRange(1, MOST_GPUS), metavar="N", help="Say which groups of ranks cross nodes."
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """One model and the plans to take with it, and what the command line puts over them."""

    command_line: CommandLine
    model: str | None
    plans: tuple[str, ...]
    sizes: dict[str, int | None]
    ep_implementation: str | None
    settings: Settings

    def analyse(self, plan: str | None) -> Analysis:
        """Parse, resolve and, where the settings ask for it, check one of the plans."""
        return analyse(plan, self.given, self.settings)

    @property
    def given(self) -> Given:
        """What the command line says, with its places there."""
        return self.command_line.given(self.model, self.sizes, {"ep_implementation": self.ep_implementation})

    @property
    def plan(self) -> str | None:
        """The only plan. Raises click.UsageError when there are several."""
        if len(self.plans) > 1:
            raise click.UsageError(f"this command takes one plan, not {len(self.plans)}: {', '.join(self.plans)}")
        return self.plans[0] if self.plans else None


def inputs(function: Command, words_needed: bool = True) -> Command:
    """`[MODEL] [PLAN]…`, the sizes, and how to read the model; the function gets them as one `Inputs`."""

    @click.argument("words", nargs=-1, metavar="[MODEL] [PLAN]...")
    @_size_options
    @click.option("--ep-implementation", metavar="NAME", help="How tokens reach their experts.")
    @click.option("--world-size", type=SizeType(1), metavar="N", help="Processes that the launcher starts.")
    @click.option("--target", type=click.Choice(TARGETS), help="The runtime whose limits apply.")
    @click.option(
        "--styles-module", multiple=True, metavar="MODULE", help="Import MODULE, which registers styles; ranks do, too."
    )
    @click.option("--trust-remote-code", is_flag=True, help="Let a hub model's own code run to build it.")
    @click.option("--no-cache", is_flag=True, help="Build the model's manifest anew.")
    @wraps(function)
    def wrapper(
        words: tuple[str, ...],
        ep_implementation: str | None,
        world_size: int | None,
        target: str | None,
        styles_module: tuple[str, ...],
        trust_remote_code: bool,
        no_cache: bool,
        **rest: Any,
    ) -> Any:
        sizes = {name: rest.pop(name) for name in SIZES}
        for module in styles_module:
            import_styles(module)
        if words_needed and not words:
            raise click.UsageError("name a MODEL, or a PLAN that names one")
        model, plans = split(words)
        settings = Settings(world_size, target, cache=not no_cache, trust_remote_code=trust_remote_code)
        command_line = click.get_current_context().obj
        return function(Inputs(command_line, model, plans, sizes, ep_implementation, settings), **rest)

    return wrapper


def _size_options(function: Command) -> Command:
    for name, help_text in reversed(SIZES.items()):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, name, type=SizeType(), metavar="N", help=help_text)(function)
    return function


def split(words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """MODEL and the PLANs. The first word is the MODEL unless it looks like a plan; then each plan names its own."""
    if not words or looks_like_plan(words[0]):
        return None, tuple(words)
    return words[0], tuple(words[1:])


def looks_like_plan(word: str) -> bool:
    """Whether `word` is a plan file rather than a model: `*.yaml`, `*.yml`, or `*.json` with no config or manifest."""
    if word.endswith(YAML):
        return True
    if not word.endswith(".json"):
        return False
    try:
        content = json.loads(Path(word).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and not {"model_type", "architectures", "modules"} & set(content)


def import_styles(module: str) -> None:
    """Import `module`; the user named it, so its code may run. Raises click.UsageError."""
    from planc.styles import modules

    try:
        modules.import_styles(module)
    except modules.StylesModuleError as error:
        raise click.UsageError(str(error)) from None
