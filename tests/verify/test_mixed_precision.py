"""`fsdp_mixed_precision`: judged at its own precision, and by double precision for what it computes."""

import pytest

import planc
from planc.verify import mixed_precision
from planc.verify.outcome import Verdict

MIXED = {"fsdp_mixed_precision": True}


@pytest.mark.parametrize(
    "model, sizes",
    [
        ("llama", {"fsdp_size": 2, "dp_replicate_size": 2}),
        ("gemma2", {"tp_size": 2, "fsdp_size": 2}),
        ("qwen3_moe", {"tp_size": 2, "fsdp_size": 2, "ep_size": 4}),
    ],
)
def test_right_plans_are_proved(model: str, sizes: dict[str, int]) -> None:
    found = planc.verify(model, {**sizes, **MIXED})
    assert found.verdict is Verdict.PROVED, found.diagnostics


@pytest.mark.parametrize(
    "key, style, code",
    [
        ("model.layers.*.self_attn.q_norm", "replicate", "PL702"),  # wrong gradients only
        ("model.layers.*.mlp.experts", "local_params", "PL701"),
        ("model.norm", "all_reduce", "PL701"),
    ],
)
def test_wrong_plans_stay_refuted(key: str, style: str, code: str) -> None:
    plan = {"tp_size": 2, "fsdp_size": 2, "tp_plan": {key: style}}
    found = planc.verify("qwen3_moe", {**plan, **MIXED})
    assert (found.verdict, {d.code for d in found.diagnostics}) == (Verdict.REFUTED, {code})


def test_more_than_the_precision_makes_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run at its own precision is compared: with a hundredth of the measured tolerance it departs."""
    monkeypatch.setattr(mixed_precision, "_MARGIN", 0.01)
    found = planc.verify("llama", {"fsdp_size": 2, **MIXED})
    assert found.verdict is Verdict.UNKNOWN
    assert "under mixed precision" in found.diagnostics[0].message


def test_a_policy_that_can_not_run_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops only under mixed precision is the plan's fault."""

    def refuse(**_: object) -> None:
        raise TypeError("no such precision")

    monkeypatch.setattr("planc.runtime.interpreter.fsdp.MixedPrecisionPolicy", refuse)
    found = planc.verify("llama", {"fsdp_size": 2, **MIXED})
    assert (found.verdict, found.diagnostics[0].code) == (Verdict.REFUTED, "PL704")
