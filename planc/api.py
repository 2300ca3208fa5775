"""The Python facade: from a model and a plan to findings, to a program, to sharded ranks.

Nothing here needs torch before a model must be built or run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Diagnostic, Report, Severity
from planc.diagnostics.span import Span
from planc.syntax.plan import SIZE_NAMES, Plan, Spanned

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from transformers.distributed import DistributedConfig

    from planc.check.rule import CheckContext
    from planc.model.manifest import Manifest
    from planc.program.passes import DumpAfter
    from planc.program.program import Program
    from planc.resolve.resolved import ResolvedPlan


class HasDict(Protocol):
    """Something like transformers' `DistributedConfig`."""

    def to_dict(self) -> dict[str, Any]: ...


# A plan file, what a plan file would hold, or a parsed plan.
PlanLike = str | Path | Mapping[str, Any] | HasDict | Plan | None


@define("PL051", "unusable-model", Severity.ERROR)
class UnusableModel:
    """The model can't be read or built.

    MODEL is a hub id, a folder or file with a `config.json`, the name of a bundled config, a transformers `model_type`,
    a manifest file, or `package.module:factory`. The last is code, and only runs where the command line names it: a
    plan file can't. Without its manifest only the plan's text is checked.

    Example:

        planc check qwen3-30b-a3b-typo plan.yaml

    Use instead the name of a model that exists; `planc manifest MODEL` tells what planc makes of it.
    """

    code: ClassVar[Code]


@define("PL052", "no-model", Severity.ERROR)
class NoModel:
    """Neither the plan nor the caller names a model.

    A plan can only be judged against a model: name it in the plan, as `model: Qwen/Qwen3-30B-A3B`, or on the command
    line, as `planc check qwen3-30b-a3b plan.yaml`.
    """

    code: ClassVar[Code]


class PlanError(Exception):
    """A plan that can't be compiled. `report` holds every finding."""

    def __init__(self, report: Report) -> None:
        self.report = report
        first = next(d for d in report.diagnostics if d.severity is Severity.ERROR)
        count = sum(d.severity is Severity.ERROR for d in report.diagnostics)
        super().__init__(f"{first.code}: {first.message}" + (f" (and {count - 1} more errors)" if count > 1 else ""))


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says beside the plan file, each with its place in `sources`; it wins over the file."""

    model: Spanned[str] | None = None
    sizes: Mapping[str, Spanned[int]] = field(default_factory=dict)
    options: Mapping[str, Spanned[bool | str]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def over(self, plan: Plan) -> Plan:
        """`plan` with what was given put over it."""
        return replace(
            plan,
            model=self.model or plan.model,
            sizes={**plan.sizes, **self.sizes},
            options={**plan.options, **self.options},
            sources={**plan.sources, **self.sources},
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """How a plan is checked."""

    world_size: int | None = None
    target: str | None = None
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    rules: bool = True
    cache: bool = True
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class Analysis:
    """A report, and what was judged; `context` is None where the plan or the model can't be read at all."""

    report: Report
    context: "CheckContext | None" = None


def check(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    target: str | None = None,
    ep_implementation: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    **sizes: int,
) -> Report:
    """Every finding about `plan` for `model`; without a plan, about the model's own.

    `model` is all that MODEL may be on the command line, or None where the plan names it. `sizes` are `tp_size`,
    `ep_size`, `fsdp_size`, `dp_replicate_size` and `pp_size`; they win over the plan's. `world_size` is the number of
    processes that will be started. `select` and `ignore` are codes or beginnings of codes. Bad input is a finding, not
    an exception; only wrong arguments raise TypeError.
    """
    settings = Settings(world_size, target, tuple(select), tuple(ignore))
    return analyse(plan, arguments("check", model, ep_implementation, sizes), settings).report


def resolve(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "ResolvedPlan":
    """What every module and parameter gets, and from which rule; arguments as for `check`.

    Raises PlanError where the plan or the model can't be read, or the plan's text has errors.
    """
    given = arguments("resolve", model, ep_implementation, sizes)
    analysis = analyse(plan, given, Settings(world_size, rules=False))
    if analysis.context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    return analysis.context.resolved


def compile(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    target: str | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "Program":
    """The program of `plan` for `model`; arguments as for `check`.

    Raises PlanError, with every finding, where there are errors, and ProgramError where a rule has no lowering.
    """
    given = arguments("compile", model, ep_implementation, sizes)
    return lowered(analyse(plan, given, Settings(world_size, target)))


def lowered(analysis: Analysis, dump_after: "DumpAfter | None" = None) -> "Program":
    """The program of what was analysed; raises as `compile`."""
    from planc.program.lower import lower

    context = analysis.context
    if context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    return lower(context.plan, context.resolved, context.manifest, dump_after)


def apply(model: "nn.Module", program: "Program | str | Path | None" = None) -> "nn.Module":
    """Shard `model` in place as `program` (or its file, or the one that `planc apply … -- script` compiled) says.

    Every process of the program's layout must call it. Raises RunError and ProgramError.
    """
    from planc.runtime.apply import apply as run

    return run(model, program)


def from_pretrained(
    model: str | Path,
    plan: "PlanLike | Program" = None,
    *,
    checkpoint: str | Path | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "nn.Module":
    """The model of a folder, sharded, with this rank's shards of its weights.

    `plan` is a plan as for `check`, a program or a program's file; without it and without sizes, the program that
    `planc apply … -- script` compiled. Raises as `compile` and `apply`.
    """
    from planc.program.program import Program
    from planc.runtime.apply import PROGRAM_VARIABLE
    from planc.runtime.pretrained import from_pretrained as load

    program: Program | str | Path | None = None
    if isinstance(plan, Program) or (isinstance(plan, str | Path) and is_program_file(plan)):
        program = plan
    elif plan is not None or sizes or PROGRAM_VARIABLE not in os.environ:
        started = os.environ.get("WORLD_SIZE", "")
        world_size = int(started) if started.isdecimal() else None
        program = compile(model, plan, target=None, world_size=world_size, ep_implementation=ep_implementation, **sizes)
    return load(model, program, checkpoint)


def distributed_config(
    plan: PlanLike = None,
    model: str | Path | None = None,
    *,
    world_size: int | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "DistributedConfig":
    """The `DistributedConfig` with which transformers' `from_pretrained` does what `plan` says.

    Arguments as for `check`; the plan may name the model. Raises PlanError, with a finding for each rule that
    transformers can't carry, or with whatever `check` finds wrong.
    """
    from transformers.distributed import DistributedConfig

    fields = exported(plan, arguments("distributed_config", model, ep_implementation, sizes), world_size)
    return DistributedConfig(**fields)


def exported(plan: PlanLike, given: Given, world_size: int | None = None) -> dict[str, Any]:
    """The fields of `distributed_config`, without transformers."""
    from planc.program.export import export

    analysis = analyse(plan, given, Settings(world_size))
    context = analysis.context
    if context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    found = export(context.plan, context.resolved, context.manifest)
    if found.findings:
        raise PlanError(_with(analysis.report, found.findings))
    return dict(found.fields)


def save_pretrained(model: "nn.Module", folder: str | Path, max_shard_size: int | str = "50GB") -> None:
    """Save a sharded model as an ordinary checkpoint that transformers loads; every rank calls it.

    What a single process would have saved, byte for byte; files of more than `max_shard_size` (bytes, or as `"5GB"`)
    are split. Raises RunError, the same on every rank; `folder` is then as it was.
    """
    from planc.runtime.checkpoint.saving import save_pretrained as save

    save(model, Path(folder), max_shard_size)


def save_training(model: "nn.Module", optimizer: "Optimizer | None", folder: str | Path, step: int = 0) -> None:
    """Save parameters, optimizer state and step count, to be resumed at any layout; every rank calls it.

    Raises RunError, the same on every rank; `folder` is then as it was.
    """
    from planc.runtime.checkpoint.training import save_training as save

    save(model, optimizer, folder, step)


def load_training(model: "nn.Module", optimizer: "Optimizer | None", folder: str | Path) -> int:
    """Load what `save_training` saved into `model` and `optimizer`, at this run's layout; returns the step count.

    Raises RunError, the same on every rank.
    """
    from planc.runtime.checkpoint.training import load_training as load

    return load(model, optimizer, folder)


def is_program_file(path: str | Path) -> bool:
    """Whether `path` holds a program rather than a plan."""
    try:
        content = json.loads(Path(path).read_bytes()) if str(path).endswith(".json") else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"groups", "hash"} <= content.keys()


def arguments(
    function: str, model: str | Path | None, ep_implementation: str | None, sizes: Mapping[str, int]
) -> Given:
    """The arguments of a call as a source text of their own, so that findings can point into them."""
    for name, size in sizes.items():
        if name not in SIZE_NAMES:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name} must be an int, not {type(size).__name__}")
    file, text = f"<planc.{function}>", f"planc.{function}("
    spans: dict[str, Span] = {}
    options = {"ep_implementation": ep_implementation} if ep_implementation is not None else {}
    named = ({"model": str(model)} if model is not None else {}) | dict(sizes) | options
    for number, (name, value) in enumerate(named.items()):
        text += (", " if number else "") + ("" if name == "model" else f"{name}=")
        start = len(text) + 1
        text += json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
        spans[name] = Span(file, 1, start, 1, len(text) + 1)
    return Given(
        model=Spanned(str(model), spans["model"]) if model is not None else None,
        sizes={name: Spanned(size, spans[name]) for name, size in sizes.items()},
        options={name: Spanned(value, spans[name]) for name, value in options.items()},
        sources={file: text + ")"},
    )


def analyse(plan: PlanLike, given: Given, settings: Settings) -> Analysis:
    """Parse, load the model, resolve and check: every finding at once, whatever stage it is of."""
    parsed, found, sources = _parse(plan)
    name = plan if isinstance(plan, str | Path) else parsed.file if parsed else None
    report = Report(
        tuple(found),
        {**sources, **given.sources},
        str(name) if name else None,
        given.model.value if given.model else "",
    )
    if parsed is None:
        return Analysis(report)
    parsed = given.over(parsed)
    report = replace(report, sources={**report.sources, **parsed.sources})
    if parsed.model is None:
        return Analysis(_with(report, [_no_model(parsed)]))
    report = replace(report, model_name=parsed.model.value)
    manifest = _load(parsed.model, settings, by_caller=given.model is not None)
    if isinstance(manifest, Diagnostic):
        return Analysis(_with(report, [manifest]))
    return _judge(parsed, manifest, report, settings)


def _judge(plan: Plan, manifest: "Manifest", report: Report, settings: Settings) -> Analysis:
    from planc.check.rule import CheckContext
    from planc.resolve.layout import derive_layout
    from planc.resolve.resolver import resolve

    layout = derive_layout(plan, settings.world_size)
    resolved = resolve(plan, manifest, layout)
    target = settings.target or _text(plan, "target")
    context = CheckContext(plan, manifest, layout, resolved, settings.world_size, target)
    report = replace(
        report,
        sources={**report.sources, **resolved.sources},
        model_class=manifest.file.class_name,
        layout=layout.to_json(),
    )
    return Analysis(_apply_rules(report, context, settings) if settings.rules else report, context)


def _apply_rules(report: Report, context: "CheckContext", settings: Settings) -> Report:
    from planc.check.checker import run
    from planc.check.coverage import coverage

    found = run(context, settings.select, settings.ignore)
    return replace(_with(report, found), coverage=coverage(context))


def _with(report: Report, found: Sequence[Diagnostic]) -> Report:
    from planc.check.checker import in_order

    return replace(report, diagnostics=tuple(in_order(iter((*report.diagnostics, *found)))))


def _parse(plan: PlanLike) -> tuple[Plan | None, list[Diagnostic], Mapping[str, str]]:
    """The plan as far as it can be read, what is wrong with its text, and the texts to quote from."""
    if plan is None:
        return Plan(), [], {}
    if isinstance(plan, Plan):
        return plan, [], plan.sources
    if isinstance(plan, str | Path):
        from planc.syntax.parser import parse_plan

        parsed, found = parse_plan(plan)
        return parsed, found, parsed.sources if parsed else _text_of(plan)
    from planc.syntax.arguments import plan_from_mapping

    parsed, found = plan_from_mapping(plan if isinstance(plan, Mapping) else plan.to_dict())
    return parsed, found, parsed.sources if parsed else {}


def _text_of(plan: str | Path) -> Mapping[str, str]:
    from planc.syntax.source import UnreadableError, read_source

    try:
        return {str(plan): read_source(str(plan)).text}
    except UnreadableError:
        return {}


def _load(model: Spanned[str], settings: Settings, by_caller: bool) -> "Manifest | Diagnostic":
    """The manifest; code is run for `package.module:factory` only where the caller, not a plan file, names it."""
    from planc.model.errors import ModelError
    from planc.model.sources import load_manifest

    try:
        return load_manifest(
            model.value, cache=settings.cache, trust_remote_code=settings.trust_remote_code, factories=by_caller
        )
    except ModelError as error:
        return UnusableModel.code.found(error.message, span=model.span, help=error.help)


def _no_model(plan: Plan) -> Diagnostic:
    return NoModel.code.found(
        "the plan names no model",
        span=Span(plan.file, 1, 1, 1, 1) if plan.file and not plan.file.startswith("<") else None,
        help=("name one in the plan (`model: Qwen/Qwen3-30B-A3B`) or before the plans (`planc check MODEL PLAN`)",),
    )


def _text(plan: Plan, option: str) -> str | None:
    value = plan.options.get(option)
    return str(value.value) if value is not None else None
