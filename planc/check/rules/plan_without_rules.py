"""PL112."""

from collections.abc import Iterator

from planc.check.expert_sizes import expert_counts
from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.experts_alone import experts_are_alone
from planc.resolve.resolver import PLANS
from planc.syntax.plan import PlanKind

SIZES: dict[PlanKind, tuple[str, ...]] = {
    "tp": ("tp_size",),
    "ep": ("ep_size", "enable_expert_parallel"),
    "fsdp": ("fsdp_size", "dp_replicate_size"),
}


@define("PL112", "plan-without-rules", Severity.ERROR)
class PlanWithoutRules(Rule):
    """Looks for a size above 1 whose plan has no rule.

    Such ranks would all hold the whole model and do the same work. transformers refuses it. A plan is empty when the
    model brings none, with `defaults: none` and no rules of your own, or with an explicit `tp_plan: {}`. Beside an EP
    plan that dispatches tokens an empty `tp_plan` splits the experts alone (PL116).

    Example:

        tp_size: 2
        tp_plan: {}

    Use instead the model's own plan, by leaving `tp_plan` out, or `tp_size: 1`.

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for kind in PLANS:
            if kind == "tp" and experts_are_alone(context.plan, context.resolved):
                continue
            if context.is_on(kind) and not context.resolved.rules[kind] and not self._is_dense(kind, context):
                yield self._empty(kind, context)

    def _is_dense(self, kind: PlanKind, context: CheckContext) -> bool:
        """Whether PL205 says it better."""
        return kind == "ep" and not expert_counts(context)

    def _empty(self, kind: PlanKind, context: CheckContext) -> Diagnostic:
        section = context.plan.section(kind)
        size = f"{SIZES[kind][0]}={context.layout.ep_size if kind == 'ep' else context.layout.tp_size}"
        if kind == "fsdp":
            size = f"dp_replicate_size * fsdp_size = {context.layout.dp_size}"
        brings = bool(context.own.rules[kind])
        why = f"{context.manifest.file.class_name} brings no `{kind}_plan`"
        option = context.plan.options.get("enable_expert_parallel")
        if kind == "tp" and section.state == "absent" and option is not None and option.value is True:
            why = "`enable_expert_parallel` without `ep_size` empties the TP plan"
        elif brings and section.state == "rules" and kind == "tp":
            why = "an empty `tp_plan` applies no TP rule at all"
        elif brings:
            why = "`defaults: none` leaves out the model's own rules"
        help_ = f"leave `{kind}_plan` and `defaults` out to use the model's own plan" if brings else "write rules"
        if kind == "ep" and not brings and context.own.rules["tp"]:
            help_ = "leave `ep_size` out: the model's TP plan shards the experts"
        consequence = "every rank would hold the whole model"
        return self.code.found(
            f"{size}, and the `{kind}_plan` is empty: {consequence}",
            span=size_span(context, *SIZES[kind]) or section.span,
            label=why,
            labels=size_labels(context, *SIZES[kind][1:]),
            help=(f"{help_}; or switch it off with {SIZES[kind][0]}=1",),
        )
