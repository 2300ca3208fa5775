"""`planc.verify`."""

from pathlib import Path

import transformers

import planc
from planc.verify.outcome import Verdict


def test_proves_the_models_own_plan() -> None:
    found = planc.verify("qwen3_moe", tp_size=2)
    assert found.verdict is Verdict.PROVED
    assert found.ok
    assert found.diagnostics == ()
    assert found.reloaded == ("transformers", "planc")


def test_refutes_with_the_plans_line() -> None:
    plan = {"tp_size": 2, "tp_plan": {"model.layers.*.mlp": "all_reduce"}}
    found = planc.verify("llama", plan)
    assert found.verdict is Verdict.REFUTED
    assert [(d.code, d.key) for d in found.diagnostics] == [("PL701", "model.layers.*.mlp")]


def test_bad_input_is_a_finding() -> None:
    found = planc.verify("no-such-model", tp_size=2)
    assert found.verdict is Verdict.UNKNOWN
    assert not found.ok
    assert [d.code for d in found.diagnostics] == ["PL051"]
    assert planc.verify(None, {"tp_size": 2}).verdict is Verdict.UNKNOWN
    assert planc.verify("no-such-model", {"tp_size": 2, "tp_plan": {"a..b": "colwise"}}).verdict is Verdict.REFUTED


def test_a_config_with_infinity() -> None:
    """`time_step_limit` of Falcon-H1 is `[0, inf]`, which JSON has no word for."""
    assert planc.verify("falcon_h1", tp_size=2).verdict is Verdict.PROVED


def test_a_model_of_several_is_tried_as_a_whole() -> None:
    """The manifest of Gemma 3 has the config of its text model alone, and the class of the whole."""
    found = planc.verify("gemma3", {"tp_size": 2, "tp_plan": {"model.language_model.layers.*.mlp": "all_reduce"}})
    assert [(d.code, d.key) for d in found.diagnostics] == [("PL701", "model.language_model.layers.*.mlp")]


def test_a_kernel_that_no_simulated_rank_has_is_unknown() -> None:
    found = planc.verify("qwen3_moe", tp_size=2, ep_size=2, ep_implementation="deepgemm_megamoe")
    assert found.verdict is Verdict.UNKNOWN
    assert [d.code for d in found.diagnostics] == ["PL710"]


def test_a_style_that_does_nothing_is_not_advised(tmp_path: Path) -> None:
    """On a head that shares a whole tensor `packed_rowwise` does nothing: no rule is what mends it."""
    config = transformers.AutoConfig.for_model("qwen3", tie_word_embeddings=True, num_hidden_layers=2)
    config.save_pretrained(tmp_path)
    plan = {"tp_size": 2, "defaults": "none", "tp_plan": {"lm_head": "colwise_gather_output"}}
    (found,) = planc.verify(str(tmp_path), plan).diagnostics
    assert (found.key, found.help) == ("lm_head", ("`lm_head: replicate` mends the copy",))
