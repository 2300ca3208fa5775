"""Small models whose weights are large enough (std 0.2) that a wrong plan shows in the numbers."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

STD = 0.2
BASE = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64, "initializer_range": STD, "pad_token_id": 0,
}  # fmt: skip
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
GROUPS = {"n_group": 2, "topk_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "llama-tied-biased": (
        "LlamaForCausalLM",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 8}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**MOE, "num_experts": 8, "head_dim": 8}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4}),
    "gpt_oss": ("GptOssForCausalLM", {"num_local_experts": 4, "head_dim": 8, "sliding_window": 8}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**MLA, **GROUPS, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    "phi3": ("Phi3ForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
}


def config(name: str) -> Any:
    class_name, fields = MODELS[name]
    config_class = getattr(transformers, class_name).config_class
    return config_class(**{**BASE, **fields})


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """The model in float32 with random weights, norms and biases included, the same in every process."""
    made = config(name)
    for field, value in changes.items():
        setattr(made, field, value)
    model = getattr(transformers, MODELS[name][0])(made).float().eval()
    randomise(model, seed)
    return model


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter random values that depend on its name: near 1 for norms' weights, std 0.2 otherwise."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator) * STD
            parameter.copy_(values + 1 if parameter.ndim == 1 and name.endswith("weight") else values)


def batch(vocabulary: int = 96, rows: int = 2, length: int = 7, seed: int = 1) -> Tensor:
    return torch.randint(1, vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def run(model: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits, loss and every parameter's whole gradient (DTensors gathered) of one training step."""
    model.zero_grad()
    output = model(input_ids=ids, labels=ids, use_cache=False)
    output.loss.backward()
    return output.logits.detach(), output.loss.detach(), gradients(model)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    whole: Callable[[Any], Tensor] = lambda g: g.full_tensor() if hasattr(g, "full_tensor") else g  # noqa: E731
    return {n: whole(p.grad).detach() for n, p in model.named_parameters() if p.grad is not None}
