"""Sizes above 1 that place nothing, or next to nothing: an error, whatever the reason."""

import pytest

import planc

MODELS = "tests.model.factories"


@pytest.mark.parametrize(
    "model, says",
    [("composite", "none of the 9 rules of the `tp_plan`"), ("composite_with_head", "none of the 9 rules for layers")],
)
def test_a_prefix_is_missing(model: str, says: str) -> None:
    report = planc.check(f"{MODELS}:{model}", tp_size=2)
    (found,) = [d for d in report.diagnostics if d.severity == "error"]
    assert found.code == "PL114"
    assert says in found.message
    assert "`language_model.layers.*.self_attn.q_proj`" in found.help[0]


def test_a_wrapped_model() -> None:
    """The wrapper brings no plan; rules for the model inside name nothing, and are shown with its prefix."""
    (found,) = planc.check(f"{MODELS}:wrapped", tp_size=2).diagnostics
    assert found.code == "PL112"
    key = "language_model.layers.*.mlp.up_proj"
    (found,) = planc.check(f"{MODELS}:wrapped", {"tp_size": 2, "tp_plan": {key: "colwise"}}).diagnostics
    assert found.code == "PL101"
    assert f"`base_model.model.{key}`" in found.help[0]


def test_rules_with_the_prefix_are_right() -> None:
    """A plan of the user's that places something is no plan that places nothing."""
    key = "language_model.layers.*.mlp.up_proj"
    report = planc.check(f"{MODELS}:composite", {"tp_size": 2, "tp_plan": {key: "colwise"}})
    assert "PL114" not in {d.code for d in report.diagnostics}
