"""Every layout of the documents computes what one process computes, on real ranks, with transformers' own shards.

Logits, every gradient, and the parameters after two steps of plain SGD, each data-parallel rank with its own batch.
A choice of cases: `PLANC_SWEEP=1 pytest tests/proof/test_sweep.py` runs all models over all layouts.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

import planc
from tests.proof.cases import MISSING_RULES, Case, Programs, layout
from tests.proof.models import build
from tests.proof.on_ranks import Finding, prove, same_as_theirs, worst
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks
# Relative to the largest value of a tensor. float32 sums in another order are off by 1e-6; the recurrence of
# Qwen3-Next makes 4e-5 of it in two steps. A wrong gradient is off by 0.1 and more.
TOLERANCE = 1e-4

FOUR = (
    Case("llama", layout("tp4")),
    Case("llama-tied", layout("tp2·fsdp2")),
    Case("llama-tied", layout("fsdp4")),
    Case("qwen3", layout("tp2·fsdp2")),
    Case("qwen3", layout("dp_replicate2·fsdp2")),
    Case("qwen3_moe", layout("tp4")),
    Case("qwen3_moe", layout("tp2·fsdp2·ep4"), "grouped_mm"),
    Case("qwen3_moe", layout("fsdp4·ep2"), "batched_mm"),
    Case("mixtral", layout("tp2·ep2·fsdp2", "all_reduce"), "grouped_mm"),
    Case("mixtral", layout("tp4·ep4", "all_to_all")),
    Case("gpt_oss", layout("tp2·fsdp2·ep2", "all_reduce")),
    Case("gpt_oss", layout("fsdp2·tp2·ep4"), "batched_mm"),
    Case("deepseek_v3", layout("tp2·fsdp2·ep4")),
    Case("deepseek_v3", layout("tp2·dp_replicate2")),
    Case("glm4_moe", layout("tp2·fsdp2·ep2")),
    Case("qwen3_next", layout("tp2·fsdp2·ep4")),
    Case("qwen3_moe", layout("fsdp4·ep2"), options=(("fsdp_cpu_offload", True),)),
    # Four and two tokens over four ranks of a TP group: uneven and empty shares. Two experts get all of them.
    Case("qwen3_moe", layout("tp4·ep4", "all_to_all"), length=4),
    Case("gpt_oss-crowded", layout("tp4·ep4", "all_to_all"), length=4),
    Case("gpt_oss-crowded", layout("tp4·ep4", "all_reduce"), length=4),
    Case("gpt_oss-crowded", layout("tp4·ep4", "all_reduce"), "grouped_mm", length=4),
    Case("gpt_oss-crowded", layout("tp2·fsdp2·ep4"), length=4),
    Case("gpt_oss-crowded", layout("tp2·fsdp2·ep2", "all_reduce"), length=4),
)
EIGHT = (
    Case("qwen3_moe", layout("tp4·fsdp2·ep4")),
    Case("qwen3_moe", layout("tp8·ep8", "all_reduce"), "grouped_mm"),
    Case("mixtral", layout("tp1·fsdp8·ep4")),
    Case("gpt_oss", layout("tp2·fsdp4·ep8")),
    Case("deepseek_v3", layout("tp2·fsdp4·ep4"), "grouped_mm"),
    Case("glm4_moe", layout("tp2·dp_replicate2·fsdp2·ep4")),
    Case("qwen3", layout("tp2·dp_replicate2·fsdp2")),
)
LOWER_PRECISION = (
    # Parameters in bfloat16, reduction in float32.
    Case("qwen3_moe", layout("tp2·fsdp2·ep4", "all_to_all"), options=(("fsdp_mixed_precision", True),)),
    # Norms that stay in float32 have FSDP groups of their own.
    Case("gpt_oss", layout("fsdp4·ep2"), bfloat16=True),
    Case("deepseek_v3", layout("tp2·fsdp2·ep2", "all_to_all"), bfloat16=True),
)


def proved(cases: Sequence[Case], ranks: int, timeout: float = 300) -> dict[str, str]:
    """What is wrong with each case that isn't proved."""
    programs = Programs()
    results = run_ranks(ranks, prove, [(case, programs.of(case)) for case in cases], timeout=timeout)
    assert all(result.keys() == {str(case) for case in cases} for result in results)
    found = {str(case): verdict([result[str(case)] for result in results]) for case in cases}
    return {name: wrong for name, wrong in found.items() if wrong}


def verdict(findings: Sequence[Finding]) -> str:
    for rank, finding in enumerate(findings):
        if finding.failure is not None:
            return f"rank {rank}: {finding.failure}"
        if finding.shards:
            return f"rank {rank}: sharded otherwise than transformers does: {finding.shards}"
        # Two logits, two parameters and a gradient are the least that a case compares.
        assert len(finding.errors) > 5
    error, name = worst(findings)
    return f"{name} is off by {error:.1e}" if error > TOLERANCE else ""


def test_four_ranks() -> None:
    assert proved(FOUR, 4) == {}


def test_a_released_plan_with_wrong_gradients() -> None:
    """GLM-4.5 as released: the norms of queries and keys see one rank's heads, and nothing sums their gradient.

    Right with the rules that `tests.proof.cases.MISSING_RULES` adds; `planc check` reports the released plan.
    """
    case = Case("glm4_moe", layout("tp2"), released=True)
    results = run_ranks(2, prove, [(case, Programs().of(case))])
    for finding in (result[str(case)] for result in results):
        wrong = {name for name, error in finding.errors.items() if error > TOLERANCE and name.startswith("gradient")}
        norms = {f"gradient of model.layers.{n}.self_attn.{name}_norm.weight" for n in (0, 1) for name in ("q", "k")}
        assert finding.failure is None and finding.shards == [] and wrong == norms


def test_check_reports_it(tmp_path: Path) -> None:
    build("glm4_moe").config.save_pretrained(tmp_path)
    report = planc.check(tmp_path, None, tp_size=2)
    assert [d.code for d in report.diagnostics if d.severity.value == "error"] == ["PL407", "PL407"]
    mended = {"tp_size": 2, "tp_plan": MISSING_RULES["glm4_moe"]}
    assert planc.check(tmp_path, mended).ok


def test_eight_ranks() -> None:
    assert proved(EIGHT, 8) == {}


def test_lower_precision_is_that_of_transformers() -> None:
    programs = Programs()
    results = run_ranks(4, same_as_theirs, [(case, programs.of(case)) for case in LOWER_PRECISION])
    for case in LOWER_PRECISION:
        for finding in (result[str(case)] for result in results):
            assert verdict([finding]) == "", case
            assert 1e-5 < finding.rough < 0.2, case  # lower precision, but the same model
