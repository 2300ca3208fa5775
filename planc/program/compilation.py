"""What the passes of one compilation share."""

from dataclasses import dataclass, field

from planc.model.manifest import Manifest
from planc.program.program import Provenance
from planc.resolve.resolved import ResolvedPlan
from planc.styles import registry
from planc.styles.style import Style
from planc.syntax.plan import Plan, PlanRule


@dataclass(frozen=True)
class Compilation:
    """The inputs, and the faults that passes found; a fault is reported once, however many layers have it."""

    plan: Plan
    resolved: ResolvedPlan
    manifest: Manifest
    faults: list[str] = field(default_factory=list)
    _at: set[tuple[PlanRule | None, str]] = field(default_factory=set)

    def refuse(self, rule: PlanRule | None, target: str, fault: str) -> None:
        """Note that `rule` can't be compiled on `target`."""
        if (rule, fault) in self._at:
            return
        self._at.add((rule, fault))
        if rule is None:
            self.faults.append(f"{target}: {fault}" if target else fault)
        else:
            place = f"{rule.span.file}:{rule.span.line}"
            self.faults.append(f"{place}: `{rule.key.text}: {rule.style.text}` on `{target}`: {fault}")

    def style(self, rule: PlanRule, target: str) -> Style | None:
        """The style that `rule` uses; a refusal and None where there is none."""
        cls = registry.get(rule.style.name, rule.plan)
        if cls is None:
            self.refuse(rule, target, f"`{rule.style.name}` is no {rule.plan} style")
            return None
        if rule.plan not in cls.plans and (cls.refused_elsewhere or target in self.manifest.modules):
            self.refuse(rule, target, f"`{rule.style.name}` can't stand in `{rule.plan}_plan`")
            return None
        if objection := cls.argument_objection(dict(rule.style.arguments)):
            self.refuse(rule, target, objection)
            return None
        return cls(**dict(rule.style.arguments))


def provenance(rule: PlanRule) -> Provenance:
    """Where `rule` stands."""
    return Provenance(rule.span.file, rule.span.line, rule.key.text, rule.style.text)
