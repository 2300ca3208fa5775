"""What layout types say of plans, by data."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from planc.styles import registry
from tests.check.support import codes, context, report, text

CASES: list[dict[str, Any]] = YAML(typ="safe").load((Path(__file__).parent / "faults.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_plan(case: dict[str, Any]) -> None:
    plan = {**case.get("sizes", {"tp_size": 2}), "tp_plan": case.get("plan", "auto")}
    found = report(
        context(case["model"], plan, config=case.get("config"), target=case.get("target")), select=("PL3", "PL4")
    )
    output = text(found)
    expected = [*case.get("other", []), *case.get("codes", [])]
    assert sorted(set(codes(found, "error", "warning", "unknown"))) == expected, output
    assert bool(case.get("quiet")) != bool(expected)
    for wanted in case.get("says", []):
        assert wanted in output, f"{wanted}\n{output}"
    assert not any(other in output for other in case.get("unsaid", [])), output


@pytest.mark.parametrize("target", ["mlp.down_proj", "self_attn.q_proj", "input_layernorm", "self_attn.q_norm.weight"])
def test_a_style_from_elsewhere_is_unknown(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered_styles", {"theirs": object})
    found = report(context("qwen3-8b", {"tp_size": 2, "tp_plan": {f"model.layers.*.{target}": "theirs"}}))
    assert codes(found, "error", "warning", "unknown") == ["PL420"], text(found)


@pytest.mark.parametrize("style", ["no_such_style", "ep_router", "colwise(axis=3)"])
def test_what_is_no_style_is_said_once(style: str) -> None:
    found = report(context("qwen3-8b", {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.down_proj": style}}))
    assert len(codes(found, "error")) == 1
    assert not codes(found, "unknown"), text(found)
