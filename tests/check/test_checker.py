"""What holds for all rules: documentation, order, selection; and facts that need a model by hand."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from planc.check.checker import run
from planc.check.registry import all_rules
from planc.diagnostics.diagnostic import Severity
from tests.check.hand_made import attention, experts, linear, toy
from tests.check.support import codes, context, report, text

ERR = Path(__file__).parent.parent / "err"
# Rules whose kind of model isn't bundled: tested by relatives.yaml, or here.
ELSEWHERE = {"PL309"}
BROKEN = """\
tp_size: 8
fsdp_size: 0
tp_plan:
  model.layers.*.mlp.up_prj: colwise
  lm_head: colwise_rep
  model.norm: colwise
ep_plan:
  model.layers.*.mlp.gate: ep_router
"""


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code.code)
def test_documentation_says_what_why_and_what_instead(rule: object) -> None:
    documentation = type(rule).__doc__ or ""
    assert re.search(r"Use\b.*\binstead", documentation)
    assert len(documentation.split("\n\n")) >= 4, "what it does, why it is bad, an example, what to use instead"


def test_every_rule_is_found_once_and_shown_in_an_err_file() -> None:
    own = [rule.code.code for rule in all_rules() if type(rule).__module__.rpartition(".")[2][:5] != "flow_"]
    assert len(own) == len(set(own))
    shown = {code for file in ERR.glob("*.out") for code in re.findall(r"\[(PL\d+)\]", file.read_text())}
    assert set(own) - ELSEWHERE <= shown


def test_findings_come_by_place_and_always_in_the_same_order() -> None:
    checked = context("qwen3-30b-a3b", BROKEN)
    found = run(checked)
    lines = [d.span.line for d in found if d.span and not d.span.is_virtual]
    assert lines == sorted(lines) and len(set(lines)) >= 5
    assert found == run(context("qwen3-30b-a3b", BROKEN))
    assert len(found) == len(set(found))


def test_a_broken_layout_stops_no_other_check() -> None:
    found = codes(report(context("qwen3-30b-a3b", BROKEN)), "error")
    assert {"PL101", "PL109", "PL201", "PL301", "PL902"} <= set(found)


def test_select_and_ignore_by_code_beginning_and_name() -> None:
    checked = context("qwen3-30b-a3b", BROKEN)
    assert {d.code for d in run(checked, select=("PL2",))} == {"PL201"}
    assert {d.code for d in run(checked, select=("dead-rule",))} == {"PL101"}
    assert "PL101" not in {d.code for d in run(checked, ignore=("PL1",))}
    assert {d.code for d in run(checked, select=("PL1",), ignore=("PL101",))} == {"PL102", "PL109", "PL111"}


def test_one_cause_gives_one_finding() -> None:
    found = report(context("qwen3-30b-a3b", {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.gate": "colwise"}}))
    assert codes(found, "error", "warning", "unknown") == ["PL109"]
    assert found.diagnostics[0].target_count == 48


def test_heads_that_no_fact_names_are_unknown() -> None:
    plan = {"tp_size": 4, "tp_plan": {"attention.mixed": "colwise"}}
    found = report(context(attention(num_heads=6, num_key_value_heads=6, head_dim=8), plan), ("PL3",))
    assert codes(found) == ["PL309"] and found.diagnostics[0].severity is Severity.UNKNOWN
    plan["tp_size"] = 3
    assert codes(report(context(attention(num_heads=6, num_key_value_heads=6, head_dim=8), plan), ("PL3",))) == []


def test_heads_are_recognised_by_their_width_where_nothing_was_watched() -> None:
    plan = {"tp_size": 4, "tp_plan": {"attention.q": "colwise"}}
    found = report(context(attention(num_heads=6, num_key_value_heads=6, head_dim=8), plan), ("PL3",))
    assert codes(found) == ["PL302"]
    assert "6 heads" in text(found) and "1.5 heads" in text(found)


def test_coverage_counts_bytes_of_the_fullest_rank() -> None:
    # dense: 4x4 float32, 64 bytes; experts: 4x6x4 bfloat16, 192 bytes.
    plan = {"tp_size": 2, "tp_plan": {"dense": "rowwise"}}
    cover = report(context(experts(4), plan)).coverage
    assert (cover.bytes_total, cover.bytes_per_rank, cover.bytes_even) == (256, 32 + 192, 128)
    assert (cover.parameters, cover.sharded) == (16 + 96, 16)
    assert [(r.name, r.bytes) for r in cover.replicated] == [("experts.up", 192)]


def test_coverage_of_uneven_dims_and_of_fsdp() -> None:
    # Three ranks share 4 rows: the fullest holds 2. FSDP then halves dim 0 of what each holds.
    plan = {"tp_size": 3, "tp_plan": {"dense": "colwise"}}
    assert report(context(toy(linear("dense", 4, 4)), plan)).coverage.bytes_per_rank == 32
    plan = {"fsdp_size": 2, "fsdp_plan": {"dense": "free_full_weight"}}
    cover = report(context(experts(4), plan)).coverage
    assert cover.bytes_per_rank == 128 and cover.replicated == ()


def test_coverage_of_dispatched_experts_counts_their_copies() -> None:
    plan = {
        "tp_size": 2,
        "fsdp_size": 2,
        "ep_size": 2,
        "tp_plan": {"dense": "colwise"},
        "ep_plan": {"experts": "ep_dispatch_experts", "experts.up": "grouped_gemm"},
    }
    # dense over tp and fsdp: a quarter; experts over ep=2, and over efsdp = 2 * 2 / 2 = 2.
    cover = report(context(experts(4), plan)).coverage
    assert cover.bytes_per_rank == 16 + 48 and cover.bytes_even == 64


def test_tied_parameters_count_once() -> None:
    model = toy(linear("embed", 4, 4), linear("head", 4, 4), ties=(("head.weight", "embed.weight"),))
    assert report(context(model, {"tp_size": 1})).coverage.bytes_total == 64


def test_old_accelerate_is_an_error_for_the_trainer() -> None:
    model = toy(linear("dense", 4, 4), versions={"accelerate": "1.9.0"})
    checked = context(model, {"tp_size": 2, "tp_plan": {"dense": "colwise_gather_output"}}, target="trainer")
    assert "this is 1.9.0" in text(report(checked, ("PL603",)))
    newer = replace(checked, manifest=toy(linear("dense", 4, 4), versions={"accelerate": "1.14.0"}))
    assert report(newer, ("PL603",)).ok


def test_experts_of_a_custom_model_must_divide() -> None:
    plan = {
        "fsdp_size": 4,
        "ep_size": 4,
        "ep_plan": {"experts": "ep_dispatch_experts", "experts.up": "grouped_gemm"},
        "fsdp_plan": {"dense": "free_full_weight"},
    }
    assert codes(report(context(experts(6), plan)), "error") == ["PL204"]
    assert codes(report(context(experts(8), plan)), "error") == []
