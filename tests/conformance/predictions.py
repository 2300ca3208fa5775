"""What `planc check` says of the plans of the truth table, on the same small models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from planc.check.checker import run
from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.layouts.layout import Layout
from planc.model.manifest import Manifest
from planc.resolve.resolver import resolve
from planc.syntax.arguments import plan_from_mapping
from planc.syntax.matching import generic_name
from tests.conformance.mutations import Mutation

_THEIRS = ("PL415",)
Verdict = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True, slots=True)
class Row:
    """One plan of the table: what it is, what it really does, what check says."""

    model_type: str
    size: int
    mutation: Mutation
    truth: str
    findings: tuple[Diagnostic, ...]
    experts: bool = False

    @property
    def verdict(self) -> Verdict:
        severities = {finding.severity for finding in self.findings}
        if Severity.ERROR in severities:
            return "refuted"
        return "unknown" if Severity.UNKNOWN in severities else "proved"

    @property
    def agrees(self) -> bool:
        """Whether a decided verdict is the true one."""
        return (self.verdict == "proved") == (self.truth == "right")

    @property
    def names_the_rule(self) -> bool:
        """Whether an error names the key of the one rule that was changed."""
        key = self.mutation.changes[0][0]
        errors = [finding for finding in self.findings if finding.severity is Severity.ERROR]
        return any(key == f.key or key in " ".join((f.message, f.label, *f.notes, *f.help)) for f in errors)


def manifest_of(table: Mapping[str, Any]) -> Manifest:
    """The manifest of the copy on which a table's truths were found."""
    import transformers

    from planc.model.building.builder import build_manifest
    from planc.model.building.configs import build_config
    from planc.verify.copying.building import build

    config = build_config(dict(table["config"]), {}, name=table["model_type"])
    model = build(getattr(transformers, table["class"]), config, meta=True)
    return Manifest(build_manifest(model, table["model_type"]))


def rows(table: Mapping[str, Any], manifest: Manifest | None = None) -> Iterator[Row]:
    """Every plan of a table that has a truth."""
    manifest = manifest or manifest_of(table)
    names = {generic_name(name) for name in (*manifest.modules, *manifest.parameters)}
    names.update(manifest.modules)
    # Rules for layers that this config doesn't build are the model's own affair; in a user's plan they are errors.
    live = {key: style for key, style in table["rules"].items() if key in names}
    for changes, truth in table["truths"]:
        if truth == "unknown":
            continue
        mutation = Mutation(tuple((key, style) for key, style in changes))
        experts = table.get("expert_rules") or {}
        if experts:
            findings = judge(manifest, live, table["size"], mutation.apply(experts))
        else:
            findings = judge(manifest, mutation.apply(live), table["size"])
        yield Row(table["model_type"], table["size"], mutation, truth, findings, bool(experts))


def judge(
    manifest: Manifest, rules: Mapping[str, str], size: int, expert_rules: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """The findings of a plan that consists of `rules` alone, and of `expert_rules` in EP groups of the same size.

    Of what transformers' own runtime refuses to train and planc's trains (PL415), as where transformers runs the plan:
    it found the truths.
    """
    settings: dict[str, Any] = {"defaults": "none", "tp_size": size, "tp_plan": dict(rules)}
    if expert_rules is not None:
        settings |= {"ep_size": size, "ep_plan": dict(expert_rules)}
    plan, found = plan_from_mapping(settings)
    assert plan is not None, found
    layout = Layout(tp_size=size, ep_size=size if expert_rules is not None else 1)
    resolved = resolve(plan, manifest, layout)
    context = CheckContext(plan, manifest, layout, resolved)
    theirs = run(replace(context, target="trainer"), select=_THEIRS)
    return (*found, *(finding for finding in run(context) if finding.code not in _THEIRS), *theirs)
