"""What a copy without quantised weights proves of a quantised model."""

from pathlib import Path

import pytest
from transformers import PreTrainedConfig

import planc
from planc.diagnostics.diagnostic import Severity
from planc.model.building.configs import build_config
from planc.model.building.quantization import without_quantization
from planc.verify.outcome import Verdict, VerifyReport

DATA = Path(__file__).parent.parent / "data"
OK = Path(__file__).parent.parent / "ok"


def verified(method: str, plan: Path | None = None, **sizes: int) -> VerifyReport:
    return planc.verify(str(DATA / f"qwen3-{method}.json"), plan, **sizes)


@pytest.mark.parametrize("method", ["fp8", "gptq"])
def test_cut_quantised_weights_are_never_proved(method: str) -> None:
    found = verified(method, tp_size=2)
    assert found.verdict is Verdict.UNKNOWN
    (finding,) = found.diagnostics
    assert finding.code == "PL710" and f"`{method}`" in finding.message
    assert bool(finding.notes) == (method == "fp8"), "planc reads it, dequantised"
    assert finding.target_count == 14  # seven linears in each of two layers


def test_what_is_wrong_with_quantised_shards_refutes() -> None:
    for method, size, code in (("fp8", 4, "PL305"), ("bitsandbytes-4bit", 2, "PL310")):
        found = verified(method, tp_size=size)
        assert found.verdict is Verdict.REFUTED
        assert {d.code for d in found.diagnostics} == {code}


def test_whole_quantised_weights_leave_a_proof_that_says_what_was_tried() -> None:
    found = verified("bitsandbytes-4bit", OK / "quantised-and-whole.yaml")
    assert found.verdict is Verdict.PROVED
    assert [(d.code, d.severity) for d in found.diagnostics] == [("PL712", Severity.NOTE)]
    assert found.reloaded == ("transformers", "planc"), "the copy's config doesn't call it quantised"


def test_a_plan_that_is_wrong_for_the_copy_stays_refuted() -> None:
    plan = {"tp_size": 2, "tp_plan": {"model.layers.*.mlp": "all_reduce"}}
    found = planc.verify(str(DATA / "qwen3-fp8.json"), plan)
    assert found.verdict is Verdict.REFUTED and found.diagnostics[0].code == "PL701"


def test_models_within_a_model_lose_their_quantisation_too() -> None:
    fields = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}},
    }
    config = build_config(without_quantization(fields), {}, name="llava")
    assert isinstance(config, PreTrainedConfig)
    assert not hasattr(config.get_text_config(), "quantization_config")
