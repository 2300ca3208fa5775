"""What every concrete module and parameter gets, and from which rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planc.layouts.layout import Layout
from planc.syntax.plan import PlanKind, PlanRule, StyleUse


@dataclass(frozen=True, slots=True)
class Assignment:
    """`target` gets `style` from `rule`; `hides` are the weaker rules that also named it, weakest first.

    `by_module` tells a parameter that follows its module's rule from one named by a rule of its own.
    """

    target: str
    is_parameter: bool
    rule: PlanRule
    by_module: bool = False
    hides: tuple[PlanRule, ...] = ()

    @property
    def style(self) -> StyleUse:
        return self.rule.style


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """The plans by concrete name, in application order (a module's parameters before the module).

    `rules` are all merged rules of each plan, whether or not the layout switches the plan on, weakest first.
    `matches` has the concrete names that each rule's key names, even where a stronger rule won or the plan is off;
    a rule that names nothing has an empty tuple. `displaced` are TP rules that an EP rule on the same module, or on
    one above it, switched off (for at least one name): `displaced[tp_rule] = ep_rule`. `sources` are the virtual texts
    in which the spans of the model's own rules point.
    """

    layout: Layout
    tp: Mapping[str, Assignment] = field(default_factory=dict)
    ep: Mapping[str, Assignment] = field(default_factory=dict)
    fsdp: Mapping[str, Assignment] = field(default_factory=dict)
    rules: Mapping[PlanKind, tuple[PlanRule, ...]] = field(default_factory=dict)
    matches: Mapping[PlanRule, tuple[str, ...]] = field(default_factory=dict)
    displaced: Mapping[PlanRule, PlanRule] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def plan(self, kind: PlanKind) -> Mapping[str, Assignment]:
        return {"tp": self.tp, "ep": self.ep, "fsdp": self.fsdp}[kind]
