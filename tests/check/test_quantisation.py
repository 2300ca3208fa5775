"""What is said of quantised checkpoints, method by method."""

from typing import Any

import pytest
import transformers
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from planc.check.quantisation_methods import METHODS, Standing
from planc.diagnostics.diagnostic import Severity
from tests.check.hand_made import experts, linear, toy
from tests.check.support import codes, context, report, text

QUANTISATION = ("PL305", "PL310", "PL311")
EXPECTED = {
    Standing.JUDGED: [],
    Standing.EXPERTS: [],  # linears aren't quantised
    Standing.REFUSED: ["PL310"],
    Standing.FAILS: ["PL310"],
    Standing.UNTRIED: ["PL311"],
}


def found(method: str, plan: dict[str, Any], **fields: Any) -> list[str]:
    model = toy(linear("dense", 256, 256), quantization={"method": method, **fields})
    return codes(report(context(model, plan), QUANTISATION))


def test_every_method_of_transformers_is_in_the_table() -> None:
    assert METHODS.keys() == AUTO_QUANTIZER_MAPPING.keys()


def test_sources_are_files_that_hold_the_quantizer() -> None:
    folder = transformers.__path__[0]
    for key, method in METHODS.items():
        with open(f"{folder}/{method.source}") as file:
            assert method.standing is Standing.EXPERTS or f"class {AUTO_QUANTIZER_MAPPING[key].__name__}" in file.read()


def test_rules_of_a_method_s_own_are_told() -> None:
    """A quantizer that places its scales itself isn't one without rules."""
    for key, method in METHODS.items():
        if method.standing is Standing.UNTRIED:
            has_rules = "update_parallel_plan" in vars(AUTO_QUANTIZER_MAPPING[key])
            assert ("has rules for its scales" in method.why) == has_rules, key


@pytest.mark.parametrize("key", METHODS)
def test_no_method_is_passed_in_silence(key: str) -> None:
    method, _, bits = key.partition("_") if key.startswith("bitsandbytes") else (key, "", "")
    facts = {"bits": int(bits[0])} if bits else {}
    plan = {"tp_plan": {"dense": "colwise_gather_output"}}
    assert found(method, {"tp_size": 2, **plan}, **facts) == EXPECTED[METHODS[key].standing]
    assert found(method, {"tp_size": 1, **plan}, **facts) == []


def test_a_method_that_transformers_does_not_have_is_unknown() -> None:
    assert found("new", {"tp_size": 2, "tp_plan": {"dense": "colwise_gather_output"}}) == ["PL311"]


def test_weights_that_stay_whole_are_fine() -> None:
    for method in ("gptq", "bitsandbytes"):
        assert found(method, {"tp_size": 2, "tp_plan": {"dense": "replicate"}}) == []
        plan = {"tp_size": 2, "tp_plan": {"dense": "colwise_gather_output"}}
        assert found(method, plan, not_converted=("dense",)) == []


def test_mxfp4_is_known_for_whole_experts_only() -> None:
    model = experts(4)
    of = toy(*model.file.modules[1:], quantization={"method": "mxfp4", "bits": 4, "group_size": 32})
    whole = {
        "fsdp_size": 2,
        "ep_size": 2,
        "ep_plan": {"experts": "ep_dispatch_experts", "experts.up": "grouped_gemm"},
        "fsdp_plan": {"dense": "free_full_weight"},
    }
    assert codes(report(context(of, whole), QUANTISATION)) == []
    cut = {"tp_size": 2, "tp_plan": {"experts.up": "colwise"}}
    assert codes(report(context(of, cut), QUANTISATION)) == ["PL311"]


def test_bitsandbytes_leaves_fused_experts_as_they_are() -> None:
    of = toy(*experts(4).file.modules[1:], quantization={"method": "bitsandbytes", "bits": 4})
    plan = {"fsdp_size": 2, "ep_size": 2, "ep_plan": {"experts": "ep_dispatch_experts", "experts.up": "grouped_gemm"}}
    assert codes(report(context(of, plan), QUANTISATION)) == []
    of = toy(*experts(4).file.modules[1:], quantization={"method": "torchao", "bits": 4})
    assert codes(report(context(of, plan), QUANTISATION)) == ["PL311"]


def test_fp8_without_a_block_size_has_blocks_of_128() -> None:
    model = toy(
        linear("dense", 128, 256),
        quantization={"method": "fp8", "bits": 8},
        config={"quantization_config": {"quant_method": "fp8"}},
    )
    plan = {"tp_size": 2, "tp_plan": {"dense": "colwise_gather_output"}}
    assert codes(report(context(model, plan), QUANTISATION)) == ["PL305"]


def test_unknown_is_no_error_and_says_what_is_not_known() -> None:
    model = toy(linear("dense", 256, 256), quantization={"method": "gptq", "bits": 4, "group_size": 128})
    said = report(context(model, {"tp_size": 2, "tp_plan": {"dense": "colwise_gather_output"}}), QUANTISATION)
    assert [d.severity for d in said.diagnostics] == [Severity.UNKNOWN]
    assert "`gptq`" in text(said) and "quantizer_gptq.py" in text(said)
