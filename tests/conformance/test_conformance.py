"""A sample of the truth table: check agrees with it, and the truths can be found again."""

import random
from typing import Any

import pytest

from tests.conformance.agreement import DOCUMENT
from tests.conformance.predictions import Row, rows
from tests.conformance.truth_table import FOLDER, config_for, read

SAMPLE = 40
MODELS = ("llama", "qwen3_moe", "phi3", "deepseek_v3", "gpt_neox")


EXPERT_MODELS = ("qwen3_moe", "gpt_oss")


def sampled(model_type: str, experts: bool = False) -> dict[str, Any]:
    table = read(model_type, 2, experts)
    assert table is not None
    truths = random.Random(0).sample(table["truths"], min(SAMPLE, len(table["truths"])))
    return {**table, "truths": truths}


@pytest.mark.parametrize(
    ("model_type", "experts"), [*((name, False) for name in MODELS), *((name, True) for name in EXPERT_MODELS)]
)
def test_check_agrees_with_the_truth(model_type: str, experts: bool) -> None:
    found = list(rows(sampled(model_type, experts)))
    assert all(row.experts is experts for row in found)
    decided = [row for row in found if row.verdict != "unknown"]
    assert len(decided) >= 0.9 * len(found)
    assert [_said(row) for row in decided if not row.agrees] == []
    single = [row for row in decided if len(row.mutation.changes) == 1 and row.truth != "right"]
    unnamed = [_said(row) for row in single if not row.names_the_rule]
    assert len(unnamed) <= 0.05 * len(single), unnamed


def _said(row: Row) -> str:
    return f"{row.mutation.changes}: {row.truth}, {row.verdict}, {[f.code for f in row.findings]}"


def test_truths_are_found_again() -> None:
    from planc.verify.truth import TruthBench

    table = read("qwen3_moe", 2)
    assert table is not None
    bench = TruthBench.of(config_for("qwen3_moe", 2), 2)
    assert bench is not None
    by_truth = {truth: changes for changes, truth in table["truths"]}
    assert len(by_truth) >= 3
    for truth, changes in by_truth.items():
        plan = {**table["rules"], **dict(changes)}
        assert bench.judge({key: style for key, style in plan.items() if style is not None}) == truth, changes


def test_truths_of_expert_plans_are_found_again() -> None:
    from planc.verify.truth import TruthBench

    table = read("qwen3_moe", 2, experts=True)
    assert table is not None
    bench = TruthBench.of(config_for("qwen3_moe", 2), 2, experts=True)
    assert bench is not None
    by_truth = {truth: changes for changes, truth in table["truths"]}
    assert {"right", "refused", "crash", "wrong_forward"} <= set(by_truth)
    for truth, changes in by_truth.items():
        plan = {**table["expert_rules"], **dict(changes)}
        rules = {key: style for key, style in plan.items() if style is not None}
        assert bench.judge(table["rules"], rules) == truth, changes


def test_every_table_is_on_the_page() -> None:
    page = DOCUMENT.read_text()
    tables = {path.name.partition("-tp")[0] for path in FOLDER.glob("*.json")}
    assert tables
    assert [name for name in tables if f"| {name} |" not in page] == []
