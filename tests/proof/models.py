"""Small copies of the models that the documents name, with weights that let a wrong plan show.

One or two layers of each kind, eight experts, eight heads; std 0.2 (see `tests.runtime.models`).
"""

from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.core_model_loading import build_glob_alternation

from tests.runtime.models import randomise

VOCABULARY = 96
BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 4, "intermediate_size": 32, "max_position_embeddings": 64,
    "initializer_range": 0.2, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
ROUTES: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
GROUPS: dict[str, Any] = {
    "n_group": 2, "topk_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 16, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "llama-tied": ("LlamaForCausalLM", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**ROUTES, "num_experts": 8, "decoder_sparse_step": 1}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "gpt_oss": (
        "GptOssForCausalLM",
        {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4},
    ),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**ROUTES, **GROUPS, **LATENT}),
    "glm4_moe": ("Glm4MoeForCausalLM", {**ROUTES, **GROUPS, "use_qk_norm": True}),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {**ROUTES, **LINEAR, "head_dim": 8, "num_experts": 8, "decoder_sparse_step": 1},
    ),
}
# Models that change in place what a style hands on: transformers can't train them by TP.
CHANGING: dict[str, tuple[str, dict[str, Any]]] = {
    "llama4": (
        "Llama4ForCausalLM",
        {
            "num_local_experts": 8,
            "interleave_moe_layer_step": 2,
            "intermediate_size": 16,
            "intermediate_size_mlp": 32,
            "attention_chunk_size": 4,
        },
    ),
    "falcon": (
        "FalconForCausalLM",
        {"num_kv_heads": 8, "new_decoder_architecture": True, "ffn_hidden_size": 64, "head_dim": None},
    ),
}
# Every token goes to the first two experts: most ranks of an expert group get none.
MODELS["gpt_oss-crowded"] = MODELS["gpt_oss"]
MIXTURES = tuple(name for name in MODELS if name not in ("llama", "llama-tied", "qwen3"))


def build(name: str, **changes: Any) -> Any:
    """The model in float32 with random weights, the same in every process; `changes` are fields of its config."""
    class_name, fields = {**MODELS, **CHANGING}[name]
    cls = getattr(transformers, class_name)
    fields = {name: value for name, value in {**BASE, **fields, **changes}.items() if value is not None}
    if "qk_rope_head_dim" in fields:  # its config takes `head_dim` for the rotary part
        fields.pop("head_dim")
    model = cls(cls.config_class(**fields)).float().eval()
    randomise(model)
    if name.endswith("-crowded"):
        crowd(model)
    return model


def crowd(model: Any) -> None:
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.router.bias[:2] = 50.0


def in_bfloat16(model: Any) -> Any:
    """`model` in bfloat16, except for the parameters that transformers keeps in float32."""
    plan = model._get_dtype_plan(torch.bfloat16)
    pattern, _, _ = build_glob_alternation(sorted(plan)) if plan else (None, None, None)
    for name, parameter in model.named_parameters():
        if pattern is None or not pattern.search(name):
            parameter.data = parameter.data.bfloat16()
    return model


def batches(count: int, length: int = 7) -> list[Tensor]:
    """Token ids for `count` data-parallel ranks, one row each; every other batch is two tokens shorter."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCABULARY, (1, length - 2 * (n % 2)), generator=generator) for n in range(count)]
