"""Every model type of transformers that carries a plan, for tests that sweep over them."""

import functools
from typing import Any

from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model.building.builder import build_model

# transformers 5.24.0 has no model class for these configs: parts of composite models, or aliases of other names.
WITHOUT_A_CLASS = frozenset(
    [
        "deepseek_ocr2_encoder",
        "deepseek_ocr2_text",
        "deepseek_ocr2_vision",
        "diffusion_gemma_text",
        "dots3_note_vision_encoder",
        "emu3_text_model",
        "ernie4_5_vl_moe_text",
        "ernie4_5_vl_moe_vision",
        "exaone",
        "granite4_vision_text",
        "internlm3",
        "iquestcoder",
        "llama4_vision_model",
        "paddleocr_vl_text",
        "qwen2_5_omni_text",
        "qwen3_omni_moe_talker_code_predictor",
        "qwen3_omni_moe_talker_text",
        "qwen3_omni_moe_text",
        "sarvam_mla",
        "sarvam_moe",
        "step3p5",
        "t5_gemma_module",
        "t5gemma2_decoder",
        "t5gemma2_text",
        "unlimited_ocr_text",
        "voxtral_realtime_text",
    ]
)
# The constructor fails on the default config of these (a field that has no default).
FAILING_DEFAULTS = frozenset(
    [
        "cohere_compass",
        "cohere_compass_text",
        "deepseek_ocr2",
        "diffusion_gemma",
        "dots1",
        "granite4_vision",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "hunyuan_vl",
        "hunyuan_vl_text",
        "lfm2_moe",
        "ministral",
        "nemotron",
        "qwen4_exp",
        "qwen4_exp_text",
        "t5gemma2_encoder",
    ]
)
# These need a package that planc doesn't (PIL, for a vision tower of timm).
NEEDING_A_PACKAGE = frozenset({"gemma3n"})
NOT_BUILDABLE = WITHOUT_A_CLASS | FAILING_DEFAULTS | NEEDING_A_PACKAGE


def _plans(config: Any) -> bool:
    return any(getattr(config, f"base_model_{kind}_plan", None) for kind in ("tp", "ep"))


@functools.cache
def model_types_with_a_plan() -> tuple[str, ...]:
    """Model types whose config class, or the class of one of its parts, has a TP or EP plan."""
    found = []
    for model_type in CONFIG_MAPPING:
        cls = CONFIG_MAPPING[model_type]
        parts = [part for part in getattr(cls, "sub_configs", {}).values() if isinstance(part, type)]
        if any(map(_plans, (cls, *parts))):
            found.append(model_type)
    return tuple(found)


def buildable_model_types() -> list[str]:
    return [model_type for model_type in model_types_with_a_plan() if model_type not in NOT_BUILDABLE]


def meta_model(model_type: str) -> nn.Module:
    """The model of the default config, on the meta device."""
    return build_model(model_type)
