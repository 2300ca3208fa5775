"""From the sizes that were given to a full layout."""

from planc.layouts.layout import Layout
from planc.syntax.plan import Plan, PlanSection


def derive_layout(plan: Plan, world_size: int | None = None) -> Layout:
    """The mesh sizes of `plan`, with the defaults of transformers 5.24.0.

    A size that isn't given is 1; but `tp_size` with a `tp_plan` given is what `world_size` (the launcher's number of
    processes, 1 when unknown) leaves over, and `ep_size` under the deprecated `enable_expert_parallel` is `tp_size`.
    Illegal sizes (below 1, not dividing) become 1 here; rules of `check` report them at the plan's line.

    Source: `DistributedConfig._resolve_parallelism`, `transformers/distributed/configuration_utils.py`.
    """
    sizes = {name: max(1, size.value) for name, size in plan.sizes.items()}
    fsdp, replicate, pp = (sizes.get(name, 1) for name in ("fsdp_size", "dp_replicate_size", "pp_size"))
    tp = sizes.get("tp_size", 1)
    if "tp_size" not in sizes and plan.tp_plan.state != "absent":
        tp, rest = divmod(world_size or 1, fsdp * replicate * pp)
        tp = 1 if rest else tp
    ep = sizes.get("ep_size", tp if _only_experts(plan) else 1)
    option = plan.options.get("ep_implementation")
    implementation = str(option.value) if option is not None else "auto"
    return Layout(pp, replicate, fsdp, tp, ep, implementation)


def effective_tp_section(plan: Plan) -> PlanSection:
    """`tp_plan` as transformers takes it: `enable_expert_parallel` without `ep_size` and `tp_plan` empties it."""
    if _only_experts(plan) and plan.tp_plan.state == "absent":
        return PlanSection(state="rules")
    return plan.tp_plan


def _only_experts(plan: Plan) -> bool:
    flag = plan.options.get("enable_expert_parallel")
    return flag is not None and flag.value is True and "ep_size" not in plan.sizes
