"""Plans that split the experts alone, and leave the dense modules whole on the ranks of a TP group."""

from planc.resolve.layout import effective_tp_section
from planc.resolve.resolved import ResolvedPlan
from planc.syntax.plan import Plan


def experts_are_alone(plan: Plan, resolved: ResolvedPlan) -> bool:
    """Whether `tp_size` only says which ranks share a batch: `tp_plan: {}`, beside an EP plan that dispatches tokens.

    `enable_expert_parallel` without `ep_size` empties the TP plan, too. Source: the guide to expert parallelism of
    transformers 5.23; 5.24.0 raises in `DistributedMixin._resolve_parallel_plans`, as for any size without a plan.
    """
    section = effective_tp_section(plan)
    is_empty = section.state == "rules" and not section.rules and not resolved.rules.get("tp")
    dispatches = any(use.style.name == "ep_dispatch_experts" for use in resolved.ep.values())
    return resolved.layout.tp_size > 1 and is_empty and dispatches
