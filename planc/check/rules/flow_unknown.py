"""PL420."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.analysis import dispatching
from planc.styles.registry import is_custom_ep_implementation
from planc.syntax.matching import generic_name


@define("PL420", "flow-not-followed", Severity.UNKNOWN)
class FlowNotFollowed(Rule):
    """Says what the layout types couldn't follow: it is neither proved nor refuted.

    planc records once how tensors flow through a model and follows their layouts by rules of single operations. An
    operation without a rule, a style or an EP implementation from elsewhere, or a model that could not be watched
    leaves what depends on it open. A style that somebody registered with transformers is watched on a small Linear or
    embedding, and known there where it does what one of planc's own does.

    Example: a custom style on a norm.

    Use `planc verify` instead, which tries the plan on a small copy of the model.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.layout.ep_size > 1 and is_custom_ep_implementation(context.layout.ep_implementation):
            yield from self._implementation(context)
        if context.layout.tp_size > 1 and context.judged:
            yield from self._flow(context)

    def _implementation(self, context: CheckContext) -> Iterator[Diagnostic]:
        targets = tuple(sorted(dispatching(context.resolved, context.manifest)))
        name = context.layout.ep_implementation
        if targets:
            names = tuple(dict.fromkeys(map(generic_name, targets)))
            yield self._found(f"{_listed(names)}: how `{name}` brings tokens to their experts is not known", targets)

    def _flow(self, context: CheckContext) -> Iterator[Diagnostic]:
        analysis = context.flow
        if analysis.flow is None:
            message = "the model could not be watched: nothing is known of what flows between its modules"
            raised = context.manifest.file.unwatched
            yield self._found(message, (), (f"called with token ids alone it raises {raised}",) if raised else ())
            return
        if analysis.foreign:
            names = tuple(dict.fromkeys(map(generic_name, analysis.foreign)))
            yield self._found(f"{_listed(names)}: what the style does is not known", analysis.foreign)
        reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
        for judgement in analysis.judgements:
            for unfollowed in judgement.unfollowed:
                reasons[(unfollowed.operation, unfollowed.reason)].extend(judgement.alike(unfollowed.module))
        for (operation, reason), modules in reasons.items():
            names = tuple(dict.fromkeys(map(generic_name, modules)))
            yield self._found(f"{_listed(names)}: `{operation}` can't be followed ({reason})", tuple(modules))

    def _found(self, message: str, targets: tuple[str, ...], notes: tuple[str, ...] = ()) -> Diagnostic:
        return self.code.found(
            message,
            targets=targets[:3],
            target_count=len(targets),
            notes=notes,
            help=("`planc verify` tries the plan on a small copy of the model",),
        )


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
