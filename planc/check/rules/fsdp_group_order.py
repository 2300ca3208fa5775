"""PL115."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
from planc.resolve.resolved import Assignment
from planc.styles.expert_parallel import EpDispatchExperts
from planc.styles.fsdp import FreeFullWeight, KeepFullWeight
from planc.syntax.plan import PlanRule


@dataclass(frozen=True, slots=True)
class _Clash:
    """A rule whose targets are wrapped too late: `outer` has wrapped them, or a module around them, before."""

    inner: PlanRule
    outer: PlanRule
    is_same: bool


@define("PL115", "fsdp-group-order", Severity.ERROR)
class FsdpGroupOrder(Rule):
    """Looks for FSDP rules on modules that lie inside of what was wrapped before.

    FSDP2 groups are formed from the inside out, and a module can't be wrapped inside of a group that exists. The order
    is fixed: first the experts that tokens are dispatched to, then the modules with `free_full_weight`, inner ones
    first, then those with `keep_full_weight`. So a module can't keep its weights inside of one that frees them, and
    dispatched experts can't have an FSDP rule: they are wrapped already, over their own axes. transformers and torch
    raise errors that name no rule ("Cannot concatenate overlapping meshes", "can only be applied to a module once").

    Example, on Qwen3, whose own plan frees the layers:

        fsdp_size: 4
        fsdp_plan:
          model.layers.*.mlp: keep_full_weight

    Use instead `free_full_weight` inside of modules that free their weights:

        fsdp_size: 4
        fsdp_plan:
          model.layers.*.mlp: free_full_weight

    Source: `apply_fully_sharded_data_parallelism`, transformers 5.24.0, `distributed/fsdp.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if not context.is_on("fsdp"):
            return
        found: dict[_Clash, list[str]] = defaultdict(list)
        for target, clash in _clashes(context):
            found[clash].append(target)
        for clash, targets in found.items():
            yield self._found(clash, targets)

    def _found(self, clash: _Clash, targets: Sequence[str]) -> Diagnostic:
        # The user's rule is the one to change.
        inner, outer = clash.inner, clash.outer
        first, second = (outer, inner) if outer.origin == "user" != inner.origin else (inner, outer)
        is_dispatched = outer.plan == "ep"
        if is_dispatched:
            where = "names" if clash.is_same else "lies inside of"
            message = f"`{inner.key.text}` {where} dispatched experts (`{outer.key.text}`), which are wrapped already"
            help_ = "leave the rule out: dispatched experts are sharded over efsdp without one"
        else:
            message = (
                f"`{inner.key.text}` keeps its full weight inside of `{outer.key.text}`, which frees its own: "
                "the outer module is wrapped first"
            )
            help_ = f"`{FreeFullWeight.name}` on both; or `{KeepFullWeight.name}` on `{outer.key.text}`, too"
        return self.code.found(
            message,
            span=first.span,
            label=f"{counted(len(targets), 'module')}" if first is inner else "wrapped before what it holds",
            labels=() if second.span.is_virtual else (Label(second.span, f"`{second.style.text}` from here"),),
            key=first.key.text,
            targets=tuple(targets[:3]),
            target_count=len(targets),
            help=(help_,),
            fix=_fix(inner) if first is inner and not is_dispatched else None,
        )


def _clashes(context: CheckContext) -> Iterator[tuple[str, _Clash]]:
    """Each FSDP rule's target that is wrapped already, or lies in what is, with the rule that did it."""
    modules = [a for a in context.resolved.fsdp.values() if not a.is_parameter]
    experts = {a.target: a for a in context.resolved.ep.values() if _dispatches(a)} if context.is_on("ep") else {}
    freed = {a.target: a for a in modules if a.style.name == FreeFullWeight.name}
    for assignment in modules:
        if (same := experts.get(assignment.target)) is not None:
            yield assignment.target, _Clash(assignment.rule, same.rule, is_same=True)
            continue
        before = {**freed, **experts} if assignment.style.name == KeepFullWeight.name else experts
        outer = next((before[name] for name in _around(assignment.target) if name in before), None)
        if outer is not None:
            yield assignment.target, _Clash(assignment.rule, outer.rule, is_same=False)


def _dispatches(assignment: Assignment) -> bool:
    return not assignment.is_parameter and assignment.style.name == EpDispatchExperts.name


def _around(name: str) -> Iterator[str]:
    """The modules that contain `name`, from the inside out."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _fix(inner: PlanRule) -> Fix | None:
    if inner.origin != "user":
        return None
    return Fix(f"write `{FreeFullWeight.name}`", (Edit(inner.style.span, FreeFullWeight.name),), safe=False)
