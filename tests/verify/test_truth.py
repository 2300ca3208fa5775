"""What single swaps of released plans do."""

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.verify.truth import truth

SWAPS = [
    ("llama", {}, "right"),
    ("llama", {"lm_head": "replicate"}, "right"),
    ("llama", {"lm_head": "colwise"}, "wrong_forward"),
    ("llama", {"model.embed_tokens": "all_reduce"}, "wrong_forward"),
    ("llama", {"model.layers.*.self_attn.o_proj": "colwise"}, "crash"),
    ("llama", {"model.norm": "colwise"}, "refused"),
    ("llama", {"model.layers.1.mlp": "all_reduce"}, "wrong_forward"),
    ("llama", {"model.layers.*.mlp": "no_such_style"}, "refused"),
    ("qwen3", {"model.layers.*.self_attn.q_norm": "replicate"}, "wrong_gradient"),
]


@pytest.mark.parametrize(("model_type", "swap", "expected"), SWAPS)
def test_truth(model_type: str, swap: dict[str, str], expected: str) -> None:
    own = {
        "llama": {"lm_head": "colwise_gather_output", "model.embed_tokens": "embedding_rowwise"},
        "qwen3": {"lm_head": "colwise_gather_output", "model.embed_tokens": "embedding_rowwise"},
    }[model_type]
    plan = CONFIG_MAPPING[model_type]().base_model_tp_plan
    rules = {**own, **{f"model.{key}": style for key, style in plan.items()}, **swap}
    assert truth(model_type, rules, 2) == expected
