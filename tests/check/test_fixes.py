"""Offered fixes mend: whoever follows them, one after the other, comes to an end, and nowhere worse.

`PLANC_SWEEP=1 pytest tests/check/test_fixes.py` follows the fixes of some thousand mutated plans.
"""

import os
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import planc
from planc.check.checker import run
from planc.check.coverage import coverage
from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Diagnostic, Edit, Severity
from planc.diagnostics.edits import apply_edits
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import resolve
from planc.styles.registry import REMOVED, STYLES
from planc.syntax.parser import parse_text
from tests.check.support import dumped, manifest

HERE = Path(__file__).parent
FAULTS: list[dict[str, Any]] = YAML(typ="safe").load((HERE.parent / "flow" / "faults.yaml").read_text())
CASES: list[dict[str, Any]] = YAML(typ="safe").load((HERE.parent / "cases" / "cases.yaml").read_text())
# Those whose command line says nothing but the model.
WRONG = [
    path
    for path in sorted((HERE.parent / "err").glob("PL[1-9]*.yaml"))
    if re.fullmatch(r"# planc check [\w./-]+", path.read_text(encoding="utf-8").partition("\n")[0])
]
MUTATED = 3000 if "PLANC_SWEEP" in os.environ else 24


class Plan:
    """A plan's text against a model, and what planc finds."""

    def __init__(self, model: str, text: str, config: Mapping[str, Any] | None = None, target: str | None = None):
        self.model, self.text, self.config, self.target = model, text, config, target
        parsed, unread = parse_text(text, "plan.yaml")
        assert parsed is not None
        facts = manifest(model, config)
        layout = derive_layout(parsed, None)
        self.context = CheckContext(parsed, facts, layout, resolve(parsed, facts, layout), None, target)
        self.findings = run(self.context, unread=unread)

    @property
    def fixes(self) -> list[Diagnostic]:
        return [finding for finding in self.findings if finding.fix is not None]

    @property
    def sharded(self) -> int:
        return coverage(self.context).sharded

    def fixed(self, finding: Diagnostic) -> "Plan":
        assert finding.fix is not None
        return Plan(self.model, apply_edits(self.text, finding.fix.edits), self.config, self.target)

    def said(self) -> str:
        return "\n".join([self.text, *(f"{f.code} {f.severity} {f.message} {f.fix}" for f in self.findings)])


def errors(findings: list[Diagnostic]) -> int:
    return sum(finding.severity is Severity.ERROR for finding in findings)


def follow(plan: Plan, choose: random.Random) -> int:
    """Make offered fixes until none is left; the number made. Each must mend."""
    made = 0
    while plan.fixes:
        finding = choose.choice(plan.fixes)
        after = plan.fixed(finding)
        step = f"{plan.said()}\n--- {finding.code} ---\n{after.said()}"
        assert errors(after.findings) <= errors(plan.findings), step
        assert len(after.findings) <= len(plan.findings), step
        assert not {"PL007"} & {f.code for f in after.findings} - {f.code for f in plan.findings}, step
        if finding.code.startswith("PL4") and after.sharded < plan.sharded:
            best = max((p.sharded for p in single_repairs(plan) if len(p.findings) <= len(after.findings)), default=0)
            assert after.sharded >= best, step
        plan = after
        made += 1
        assert made < 40, plan.said()
    return made


def single_repairs(plan: Plan) -> Iterator[Plan]:
    """The plan with every other style for each of its rules."""
    for rule in plan.context.plan.tp_plan.rules:
        for style in STYLES:
            yield Plan(plan.model, apply_edits(plan.text, [Edit(rule.style.span, style)]), plan.config, plan.target)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case["id"])
def test_fixes_of_faults(case: dict[str, Any]) -> None:
    content = {**case.get("sizes", {"tp_size": 2}), "tp_plan": case.get("plan", "auto")}
    follow(Plan(case["model"], dumped(content), None, case.get("target")), random.Random(1))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_fixes_of_cases(case: dict[str, Any]) -> None:
    content = {**case["layout"], **case.get("plan", {})}
    follow(Plan(case.get("model") or case["model_type"], dumped(content), case.get("config")), random.Random(1))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_fixes_of_plans_in_files(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user meets them: by `planc.check`, on a copy of the folder, where plans extend plans."""
    model = path.read_text(encoding="utf-8").partition("\n")[0].split()[-1]
    for other in path.parent.glob("*.yaml"):
        (tmp_path / other.name).write_bytes(other.read_bytes())
    monkeypatch.chdir(tmp_path)
    report = planc.check(model, path.name)
    for _ in range(40):
        fixes = [finding.fix for finding in report.diagnostics if finding.fix is not None]
        if not fixes:
            break
        for file in {edit.span.file for edit in fixes[0].edits}:
            mine = [edit for edit in fixes[0].edits if edit.span.file == file]
            Path(file).write_text(apply_edits(report.sources[file], mine), encoding="utf-8")
        after = planc.check(model, path.name)
        assert errors(list(after.diagnostics)) <= errors(list(report.diagnostics))
        assert len(after.diagnostics) < len(report.diagnostics), (report.diagnostics, after.diagnostics)
        report = after
    else:
        raise AssertionError("fixes without end")


MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "gpt_oss", "t5", "glm4_moe_lite", "qwen3_next", "gemma2", "phi3")


def rules_of(model: str) -> dict[str, str]:
    """The model's own TP plan with generic keys, or one that cuts its attention."""
    facts = manifest(model)
    own = Plan(model, "tp_size: 2\n").context.own.rules["tp"]
    found = {rule.key.text: rule.style.text for rule in own}
    if len(found) > 2:
        return found
    names = dict.fromkeys(name for name in Plan(model, "tp_size: 2\n").context.names if name.endswith(("q_proj", ".q")))
    assert names or facts
    return {
        f"{name.rpartition('.')[0]}.{part}": style
        for name in names
        for part, style in (
            {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise"}
            if name.endswith("_proj")
            else {"q": "colwise", "k": "colwise", "v": "colwise", "o": "rowwise"}
        ).items()
    }


def mutated(number: int) -> tuple[str, str]:
    """A model and a plan that was right, with one to three changes of a user's kind."""
    choose = random.Random(number)
    model = choose.choice(MODELS)
    rules = list(rules_of(model).items())
    names = [name for name in Plan(model, "tp_size: 2\n").context.names if name.count(".") > 1]
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(len(rules))
        key, style = rules[at]
        match choose.randrange(7):
            case 0:
                if len(rules) > 1:
                    del rules[at]
            case 1:
                rules[at] = (key, choose.choice([*sorted(STYLES), *sorted(REMOVED)]))
            case 2:
                cut = choose.randrange(1, len(key) - 1)
                rules[at] = (key[:cut] + key[cut + 1 :], style)
            case 3:
                rules[at] = (key.partition(".")[2] or key, style)
            case 4:
                rules[at] = (f"{key}.weight", style)
            case 5:
                rules[at] = (key, style[: choose.randrange(3, len(style) + 1)])
            case 6:
                rules.append((choose.choice(names), choose.choice(sorted(STYLES))))
    size = choose.choice([2, 2, 2, 4])
    defaults = choose.choice(["model", "none"])
    lines = [f"tp_size: {size}", f"defaults: {defaults}", "tp_plan:", *(f"  {key}: {style}" for key, style in rules)]
    return model, "\n".join([*dict.fromkeys(lines), ""])


def test_fixes_of_mutated_plans() -> None:
    made = 0
    for number in range(MUTATED):
        model, text = mutated(number)
        if parse_text(text, "plan.yaml")[0] is not None:
            made += follow(Plan(model, text), random.Random(number))
    assert made > MUTATED / 4
