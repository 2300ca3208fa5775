"""PL217."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.flow.analysis import dispatching
from planc.layouts.placement import Placement, Shard, StridedShard
from planc.resolve.resolved import Assignment
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanRule


@define("PL217", "parameter-on-two-axes", Severity.ERROR)
class ParameterOnTwoAxes(Rule):
    """Looks for parameters that the TP plan and the EP plan both place.

    An EP rule drops the TP rules on the same name and below it, not those above: a parameter with an EP rule of its own
    still follows its module's TP rule. Which of the two cuts comes first isn't stated anywhere, and transformers
    refuses to place a tensor on a second mesh.

    Example:

        tp_size: 2
        ep_size: 2
        tp_plan:
          lm_head: colwise_gather_output
        ep_plan:
          lm_head.weight: colwise

    Use instead one plan for the parameter: leave the EP rule out, or put it on the module (`lm_head`), where it
    displaces the TP rule.

    Source: `distribute_tensor`, torch 2.13.0, called by `shard_param` of the styles, transformers 5.24.0,
    `distributed/tensor_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if not dispatching(context.resolved, context.manifest):
            return  # an EP plan that dispatches nowhere isn't applied, as PL216 says
        found: dict[tuple[PlanRule, PlanRule, str], list[str]] = defaultdict(list)
        for name, expert in context.resolved.ep.items():
            tensor = context.resolved.tp.get(name)
            if tensor is None or not expert.is_parameter:
                continue
            cuts = [_placement(assignment, context) for assignment in (tensor, expert)]
            if cuts[0] is not None and cuts[1] is not None:
                both = f"tp: {_said(cuts[0])}; ep: {_said(cuts[1])}"
                found[tensor.rule, expert.rule, both].append(name)
        for (tensor_rule, expert_rule, both), names in found.items():
            yield self._found(tensor_rule, expert_rule, both, names)

    def _found(self, tensor: PlanRule, expert: PlanRule, both: str, names: list[str]) -> Diagnostic:
        # The user's rule is the one to change.
        first, second = (tensor, expert) if tensor.origin == "user" != expert.origin else (expert, tensor)
        module = generic_name(names[0]).rpartition(".")[0]
        return self.code.found(
            f"`{first.key.text}: {first.style.text}` places {counted(len(names), 'parameter')} that "
            f"`{second.key.text}: {second.style.text}` of `{second.plan}_plan` places too",
            span=first.span,
            label=both,
            labels=(Label(second.span, f"from `{second.plan}_plan`"),),
            key=first.key.text,
            targets=tuple(names[:3]),
            target_count=len(names),
            notes=("a parameter lies on one of the two axes: an EP rule drops TP rules on its name and below it",),
            help=(f"leave one of the two out, or give `{module}` itself the EP rule",),
        )


def _placement(assignment: Assignment, context: CheckContext) -> Placement | None:
    style = context.style(assignment)
    module, entry = context.manifest.parameters[assignment.target]
    if style is None or style.parameter_objection(module, entry) is not None:
        return None  # another finding
    return style.placement(entry)


def _said(placement: Placement) -> str:
    return f"sharded on dim {placement.dim}" if isinstance(placement, Shard | StridedShard) else "whole on every rank"
