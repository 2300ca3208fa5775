"""PL216."""

from collections.abc import Iterator

from planc.check.places import counted, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.analysis import dispatching
from planc.layouts.placement import Shard
from planc.model.manifest import Module
from planc.resolve.resolved import Assignment
from planc.styles.registry import REMOVED, STYLES, get
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanRule


@define("PL216", "half-expert-plan", Severity.ERROR)
class HalfExpertPlan(Rule):
    """Looks for experts that are sharded and not dispatched to, or dispatched to and not sharded.

    The two belong together: `grouped_gemm` leaves each rank its own experts, `ep_dispatch_experts` brings them their
    tokens. Without dispatch a rank looks up global expert ids in its local block, and transformers applies no EP plan
    that dispatches nowhere; with weights of which some are whole, the local counts disagree.

    Example:

        defaults: none
        ep_plan:
          model.layers.*.mlp.experts.gate_up_proj: grouped_gemm
          model.layers.*.mlp.experts.down_proj: grouped_gemm

    Use instead:

        defaults: none
        ep_plan:
          model.layers.*.mlp.experts: ep_dispatch_experts
          model.layers.*.mlp.experts.gate_up_proj: grouped_gemm
          model.layers.*.mlp.experts.down_proj: grouped_gemm

    Source: `DistributedMixin.maybe_distribute_model`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        ep = context.resolved.ep
        if any(a.style.name in REMOVED or "ep" not in _plans(a.style.name) for a in ep.values()):
            return  # PL106, PL107 or PL902 says what is wrong
        if ep and not dispatching(context.resolved, context.manifest):
            yield self._left_out(context)
            return
        seen: set[tuple[PlanRule, bool]] = set()
        for name, module in context.manifest.modules.items():
            own = [ep.get(parameter) for parameter in module.parameters]
            counted_as_local = [a for a in own if a is not None and _counts(a, context)]
            # Other styles that happen to shard dim 0 do too, once one of the parameters sets the number of experts.
            sharded = [a for a in own if a is not None and _by_expert(a, context)] if counted_as_local else []
            hook = ep.get(name)
            dispatched = hook is not None and hook.style.name == "ep_dispatch_experts"
            if counted_as_local and not dispatched and (key := (counted_as_local[0].rule, True)) not in seen:
                seen.add(key)
                yield self._not_dispatched(counted_as_local[0].rule, module)
            elif (
                hook is not None and dispatched and len(sharded) < len(own) and (key := (hook.rule, False)) not in seen
            ):
                seen.add(key)
                whole = [p for p, a in zip(module.parameters, own, strict=True) if a not in sharded]
                culprits = [a.rule for a in own if a is not None and a not in sharded and a.rule.origin == "user"]
                yield self._not_sharded(hook.rule, culprits[0] if culprits else hook.rule, whole, len(own))

    def _left_out(self, context: CheckContext) -> Diagnostic:
        rules = dict.fromkeys(assignment.rule for assignment in context.resolved.ep.values())
        own = next((rule for rule in rules if rule.origin == "user"), None)
        experts = dict.fromkeys(
            generic_name(name)
            for name, module in context.manifest.modules.items()
            if module.entry.experts is not None and module.entry.experts.routed
        )
        return self.code.found(
            f"ep_size={context.layout.ep_size} does nothing: no rule of the EP plan dispatches tokens to experts, and "
            "so none of it is applied",
            span=own.span if own is not None else size_span(context, "ep_size"),
            label="left out with the rest of the plan" if own is not None else "no dispatch",
            key=own.key.text if own is not None else None,
            targets=tuple(context.resolved.ep)[:3],
            target_count=len(context.resolved.ep),
            help=tuple(f"add `{name}: ep_dispatch_experts`" for name in list(experts)[:3]),
        )

    def _not_dispatched(self, rule: PlanRule, module: Module) -> Diagnostic:
        has_experts = "num_experts" in module.entry.sizes or module.entry.experts is not None
        kind = module.entry.class_name
        return self.code.found(
            f"`{rule.key.text}` leaves each rank its own experts, and nothing dispatches tokens to `{module.name}`",
            span=rule.key.span,
            label="global expert ids would be looked up in a local block"
            if has_experts
            else f"`{kind}` has no experts, and would mix its sharded weight with plain tensors",
            key=rule.key.text,
            targets=(module.name,),
            help=(f"add `{rule.key.text.rpartition('.')[0]}: ep_dispatch_experts`" if has_experts else "leave it out",),
        )

    def _not_sharded(self, dispatch: PlanRule, rule: PlanRule, whole: list[str], total: int) -> Diagnostic:
        return self.code.found(
            f"`{dispatch.key.text}` dispatches tokens to experts of which {len(whole)} of "
            f"{counted(total, 'parameter')} aren't dealt out by `grouped_gemm`",
            span=rule.span,
            label=f"not dealt out: {', '.join(name.rpartition('.')[2] for name in whole)}",
            key=rule.key.text,
            targets=tuple(whole[:3]),
            target_count=len(whole),
            help=(f"give each of them a rule: {', '.join(f'`{generic_name(n)}: grouped_gemm`' for n in whole[:3])}",),
        )


def _counts(assignment: Assignment, context: CheckContext) -> bool:
    return assignment.style.name == "grouped_gemm" and _by_expert(assignment, context)


def _by_expert(assignment: Assignment, context: CheckContext) -> bool:
    style = context.style(assignment)
    return style is not None and style.placement(context.manifest.parameters[assignment.target][1]) == Shard(0)


def _plans(style: str) -> frozenset[str]:
    found = get(style, "ep")
    # A custom style may do anything: judge nothing beside it.
    if found is None or style not in STYLES:
        return frozenset()
    return frozenset(found.plans) if found.refused_elsewhere else frozenset({*found.plans, "ep"})
