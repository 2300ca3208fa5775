"""Plans of the documents from the time when masking was a pair of styles: following the fixes ends at a right plan."""

from pathlib import Path

import pytest

import planc
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.edits import apply_edits

QWEN, GPT_OSS = "qwen3-30b-a3b", "gpt-oss-120b"
BLOCK = "ep_plan:\n  model.layers.*.mlp.{router}: ep_router\n  model.layers.*.mlp.experts: moe_tp_experts\n"
FLOW = "ep_plan: {{model.layers.*.mlp.{router}: ep_router, model.layers.*.mlp.experts: moe_tp_experts}}\n"
WITH_WEIGHTS = BLOCK + "  model.layers.*.mlp.experts.gate_up_proj: grouped_gemm\n"
JSON = """\
{{"tp_size": 4, "ep_size": 4, "ep_plan": {{
  "model.layers.*.mlp.experts": "moe_tp_experts",
  "model.layers.*.mlp.{router}": "ep_router"
}}}}
"""
MASKED = "ep_implementation: all_reduce\n"


def followed(folder: Path, name: str, text: str, model: str) -> str:
    """What becomes of a plan when every fix is taken, one after the other, until there is no other."""
    path = folder / name
    for _ in range(5):
        path.write_text(text)
        fixes = [d.fix for d in found(path, model) if d.fix]
        if not fixes:
            return text
        text = apply_edits(text, fixes[0].edits)
    raise AssertionError(f"there is always one more fix:\n{text}")


def found(path: Path, model: str) -> list[Diagnostic]:
    return [d for d in planc.check(model, path).diagnostics if d.severity is Severity.ERROR]


@pytest.mark.parametrize(("model", "router"), [(QWEN, "gate"), (GPT_OSS, "router")])
@pytest.mark.parametrize("plan", [BLOCK, FLOW, WITH_WEIGHTS])
def test_the_plan_of_the_documents(model: str, router: str, plan: str, tmp_path: Path) -> None:
    sizes = "tp_size: 4\nep_size: 4\n"
    text = followed(tmp_path, "plan.yaml", sizes + plan.format(router=router), model)
    assert text == sizes + MASKED
    assert found(tmp_path / "plan.yaml", model) == []


def test_as_json(tmp_path: Path) -> None:
    text = followed(tmp_path, "plan.json", JSON.format(router="gate"), QWEN)
    assert text == '{"tp_size": 4, "ep_size": 4, "ep_implementation": "all_reduce"}\n'


@pytest.mark.parametrize(
    "router", ["# why\n  model.layers.*.mlp.gate: ep_router  # old, gone\n", "model.layers.*.mlp.gate: ep_router\n"]
)
def test_beside_dispatch_the_routers_rule_goes(router: str, tmp_path: Path) -> None:
    sizes, rest = "fsdp_size: 4\nep_size: 4\n", "  model.layers.*.mlp.experts: ep_dispatch_experts\n"
    text = followed(tmp_path, "plan.yaml", f"{sizes}ep_plan:\n  {router}{rest}", QWEN)
    assert "ep_router" not in text and text.endswith(rest) and "ep_implementation" not in text
    assert found(tmp_path / "plan.yaml", QWEN) == []


@pytest.mark.parametrize(
    "section",
    [
        "{a: ep_router, b: ep_dispatch_experts}",
        "{b: ep_dispatch_experts, a: ep_router}",
        "{b: ep_dispatch_experts,\n  a: ep_router}",
    ],
)
def test_on_one_line_with_others(section: str, tmp_path: Path) -> None:
    section = section.replace("a:", "model.layers.*.mlp.gate:").replace("b:", "model.layers.*.mlp.experts:")
    text = followed(tmp_path, "plan.yaml", f"tp_size: 4\nep_size: 4\nep_plan: {section}\n", QWEN)
    assert text.endswith("ep_plan: {model.layers.*.mlp.experts: ep_dispatch_experts}\n")
    assert found(tmp_path / "plan.yaml", QWEN) == []


def test_several_batches_in_a_group_can_not_be_masked(tmp_path: Path) -> None:
    sizes = "fsdp_size: 4\nep_size: 4\n"
    path = tmp_path / "plan.yaml"
    path.write_text(sizes + BLOCK.format(router="gate"))
    (fix,) = (d.fix for d in found(path, QWEN) if d.fix)
    assert not fix.safe
    assert followed(tmp_path, "plan.yaml", path.read_text(), QWEN) == sizes + "ep_implementation: auto\n"
    assert found(path, QWEN) == []


def test_a_plan_that_does_more_keeps_the_rest(tmp_path: Path) -> None:
    sizes = "tp_size: 4\nep_size: 4\nep_implementation: all_reduce\n"
    text = followed(tmp_path, "plan.yaml", sizes + BLOCK.format(router="gate"), QWEN)
    assert text == sizes + "ep_plan:\n  model.layers.*.mlp.experts: ep_dispatch_experts\n"
    assert found(tmp_path / "plan.yaml", QWEN) == []


def test_the_last_rule_of_a_json_plan(tmp_path: Path) -> None:
    rules = '"model.layers.*.mlp.experts": "ep_dispatch_experts",\n  "model.layers.*.mlp.gate": "ep_router"\n'
    text = followed(tmp_path, "plan.json", f'{{"tp_size": 4, "ep_size": 4, "ep_plan": {{\n  {rules}}}}}\n', QWEN)
    assert '"ep_dispatch_experts"\n}' in text
    assert found(tmp_path / "plan.json", QWEN) == []
