"""Relatives of the cases from the field: each gives exactly its errors and warnings, and says what matters."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import planc
from planc.diagnostics.diagnostic import Report
from tests.check.support import codes, context, report, text

FILE = Path(__file__).parent.parent / "cases" / "relatives.yaml"
RELATIVES: list[dict[str, Any]] = YAML(typ="safe").load(FILE.read_text())


@pytest.mark.parametrize("case", RELATIVES, ids=lambda case: case["id"])
def test_relative(case: dict[str, Any]) -> None:
    model = case.get("model") or case["model_type"]
    plan = {**case["layout"], **case.get("plan", {})}
    found = report(
        context(model, plan, config=case.get("config"), world_size=case.get("world_size"), target=case.get("target"))
    )
    output = text(found)
    assert of_rules(found, "error") == case["codes"], output
    assert of_rules(found, "warning") == case.get("warns", []), output
    for wanted in case.get("says", []):
        assert wanted in output, f"{wanted}\n{output}"


def of_rules(found: Report, severity: str) -> list[str]:
    """Codes but for those of layout types, which have tests of their own."""
    return sorted({code for code in codes(found, severity) if not code.startswith("PL4")})


def test_a_dump_of_a_distributed_config_draws_no_deprecation() -> None:
    """With an `ep_size` transformers sets `enable_expert_parallel` itself."""
    from transformers.distributed import DistributedConfig

    dump = DistributedConfig(fsdp_size=4, ep_size=4).to_dict()
    assert dump["enable_expert_parallel"] is True
    assert planc.check("qwen3-30b-a3b", dump).diagnostics == ()
