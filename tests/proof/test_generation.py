"""Greedy generation, token by token with a cache, chooses what one process chooses: one token a step for all ranks."""

import pytest

from tests.proof.cases import Case, Programs, layout
from tests.proof.on_ranks import generates
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks
CASES = (
    Case("llama-tied", layout("tp2·fsdp2")),
    Case("qwen3_moe", layout("tp4·ep4", "auto")),
    Case("qwen3_moe", layout("tp4·ep4", "all_to_all"), length=4),
    Case("qwen3_moe", layout("tp2·fsdp2·ep4"), "grouped_mm"),
    Case("mixtral", layout("fsdp4·ep4")),
    Case("gpt_oss", layout("tp4·ep4", "all_reduce")),
    Case("gpt_oss-crowded", layout("tp2·fsdp2·ep4"), length=4),
    Case("deepseek_v3", layout("tp2·ep2·fsdp2", "all_reduce"), "batched_mm"),
    Case("qwen3_next", layout("tp2·ep2·fsdp2")),
)


def test_generation() -> None:
    programs = Programs()
    results = run_ranks(4, generates, [(case, programs.of(case)) for case in CASES])
    assert results == [{str(case): True for case in CASES}] * 4
