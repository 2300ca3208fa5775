"""One plan against one model: parse, load the model, resolve, check. What the facade and the command line share.

Nothing here needs torch before a model must be built.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Diagnostic, Report, Severity
from planc.diagnostics.span import Span
from planc.layouts.nodes import MOST_GPUS
from planc.syntax.plan import Plan, Spanned

if TYPE_CHECKING:
    from planc.check.rule import CheckContext
    from planc.model.manifest import Manifest


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
    dtype: str | None = None
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        if self.world_size is not None and self.world_size < 1:
            raise ValueError(f"a run has at least one process, not {self.world_size:,}")
        if self.gpus_per_node is not None and not 1 <= self.gpus_per_node <= MOST_GPUS:
            raise ValueError(f"a node has 1 to {MOST_GPUS:,} GPUs, not {self.gpus_per_node:,}")


@dataclass(frozen=True, slots=True)
class Analysis:
    """A report, and what was judged; `context` is None where the plan or the model can't be read at all."""

    report: Report
    context: "CheckContext | None" = None


def analyse(plan: PlanLike, given: Given, settings: Settings) -> Analysis:
    """Parse, load the model, resolve and check: every finding at once, whatever stage it is of."""
    _know_styles_by_watching()
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
        return Analysis(with_findings(report, [_no_model(parsed)]))
    report = replace(report, model_name=parsed.model.value)
    manifest = _load(parsed.model, settings, by_caller=given.model is not None)
    if isinstance(manifest, Diagnostic):
        return Analysis(with_findings(report, [manifest]))
    return _judge(parsed, manifest, report, settings)


def _know_styles_by_watching() -> None:
    """Let layout types ask what a style does that somebody registered with transformers.

    Not on a rank: watching takes ranks of its own, and the plan was checked before.
    """
    from planc.styles import registry

    registry.watcher = None if "RANK" in os.environ else _watch


def _watch(style: Any, kind: str) -> str | None:
    """Called with objects of transformers alone, so that torch is loaded already."""
    from planc.verify.watching import likeness

    return likeness(style, kind)


def _judge(plan: Plan, manifest: "Manifest", report: Report, settings: Settings) -> Analysis:
    from planc.check.rule import CheckContext
    from planc.resolve.layout import derive_layout
    from planc.resolve.resolver import resolve

    layout = derive_layout(plan, settings.world_size)
    resolved = resolve(plan, manifest, layout)
    target = settings.target or _text(plan, "target")
    context = CheckContext(
        plan, manifest, layout, resolved, settings.world_size, target, gpus_per_node=settings.gpus_per_node
    )
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

    found = run(context, settings.select, settings.ignore, report.diagnostics)
    return replace(report, diagnostics=tuple(found), coverage=coverage(context))


def refutes(report: Report) -> bool:
    """Whether an error of `report` speaks of the plan: that a model can't be read says nothing about a plan for it."""
    of_the_model = {UnusableModel.code.code, NoModel.code.code}
    return any(d.severity is Severity.ERROR and d.code not in of_the_model for d in report.diagnostics)


def with_findings(report: Report, found: Sequence[Diagnostic]) -> Report:
    """`report` with more findings, all in order."""
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

    if not isinstance(plan, Mapping) and not hasattr(plan, "to_dict"):
        raise TypeError(f"a plan is a path, a mapping, a `DistributedConfig` or a `Plan`, not {type(plan).__name__}")
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
            model.value,
            cache=settings.cache,
            trust_remote_code=settings.trust_remote_code,
            factories=by_caller,
            dtype=settings.dtype,
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
