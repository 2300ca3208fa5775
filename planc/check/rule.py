"""What a rule of the checker sees and says. Rules collect findings and never print; one rule a file."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from planc.check.flow_findings import Fault, faults
from planc.check.sharding import Hooked, Sharded, hooked_modules, sharded_parameters
from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic
from planc.flow.analysis import FlowAnalysis, analyse, judged_plan
from planc.layouts.layout import Layout
from planc.model.manifest import Manifest
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.resolve.resolver import PLANS, resolve
from planc.resolve.tied import acting_style
from planc.styles.style import Style
from planc.syntax.matching import generic_name
from planc.syntax.plan import Plan, PlanKind, PlanRule


@dataclass(frozen=True)
class CheckContext:
    """One plan against one model at one layout.

    `world_size` is what the launcher will start, where it was said. `target` is the runtime whose limits apply
    (`trainer`), where it was named. `resolved.layout` equals `layout`; the sizes may be illegal together. `searches`:
    whether to look for what would mend a fault of the dataflow. `gpus_per_node`: how many ranks share a node, where
    that was said.
    """

    plan: Plan
    manifest: Manifest
    layout: Layout
    resolved: ResolvedPlan
    world_size: int | None = None
    target: str | None = None
    searches: bool = True
    gpus_per_node: int | None = None

    @cached_property
    def names(self) -> Mapping[str, list[str]]:
        """Concrete names of modules and parameters by generic name."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in (*self.manifest.modules, *self.manifest.parameters):
            if name:
                groups[generic_name(name)].append(name)
        return groups

    @cached_property
    def sharded(self) -> tuple[Sharded, ...]:
        """Every parameter that the TP or the EP plan shards."""
        return tuple(sharded_parameters(self))

    @cached_property
    def hooked(self) -> tuple[Hooked, ...]:
        """Every module whose forward the TP or the EP plan hooks."""
        return tuple(hooked_modules(self))

    @cached_property
    def own(self) -> ResolvedPlan:
        """What the model's own plans alone give at this layout."""
        return resolve(Plan(), self.manifest, self.layout)

    @cached_property
    def flow(self) -> FlowAnalysis:
        """The plan judged by the model's dataflow."""
        return analyse(self.manifest, self.layout, self.resolved)

    @cached_property
    def judged(self) -> Mapping[str, Assignment]:
        """The rules that `flow` judges, by concrete name."""
        return judged_plan(self.resolved, self.manifest)

    @cached_property
    def faults(self) -> list[Fault]:
        """The faults of the dataflow, those with one cause together."""
        return faults(self)

    @cached_property
    def layer_kinds(self) -> tuple[str, ...]:
        """`layer_types` of the (text) config: one kind a layer; empty where the config has none."""
        config = self.manifest.file.config
        text = config.get("text_config")
        kinds = (text if isinstance(text, dict) else config).get("layer_types")
        return tuple(map(str, kinds)) if isinstance(kinds, list) else ()

    def style(self, assignment: Assignment) -> Style | None:
        """The style of an assignment as it acts where parameters are tied; None where there is none by its name."""
        return acting_style(assignment, self.resolved.plan(assignment.rule.plan), self.manifest)

    def is_on(self, kind: PlanKind) -> bool:
        """Whether the layout switches plan `kind` on."""
        sizes = {"tp": self.layout.tp_size, "ep": self.layout.ep_size, "fsdp": self.layout.dp_size}
        return sizes[kind] > 1

    def is_own_key(self, rule: PlanRule) -> bool:
        """Whether the model's own plan, where it is in force, has a rule with the same key.

        transformers 5.24.0 takes such a key without complaint, even where it names nothing.
        """
        return self.plan.defaults == "model" and any(own.key.text == rule.key.text for own in self.own.rules[rule.plan])

    def rules(self, origin: str = "user") -> Iterator[PlanRule]:
        """The merged rules of all plans that come from the user, or from the model."""
        return (rule for kind in PLANS for rule in self.resolved.rules[kind] if rule.origin == origin)


class Rule(ABC):
    """A rule of the checker. Decorate with `define(code, name, severity)`; the class docstring is its documentation."""

    code: ClassVar[Code]

    @abstractmethod
    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        """Every finding of this rule."""
