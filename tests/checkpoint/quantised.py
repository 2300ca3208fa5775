"""Small quantised checkpoints by hand, and what transformers loads of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.runtime.models import config

BLOCK = 16
WIDTH = 32  # values that share a scale in MXFP4


def save_fp8(folder: Path, name: str, block: int = BLOCK) -> None:
    """A checkpoint of the small model `name` whose projections are FP8 codes with a scale a block."""
    tensors = _plain(folder, config(name))
    for key, weight in list(tensors.items()):
        if not key.endswith("_proj.weight"):
            continue
        rows, columns = (-(-size // block) for size in weight.shape)
        scales = torch.rand(rows, columns) / 100 + 0.001
        tensors[key] = (weight.float() / spread(scales, block, weight)).to(torch.float8_e4m3fn)
        tensors[f"{key}_scale_inv"] = scales
    _write(folder, tensors, quant_method="fp8", weight_block_size=[block, block], activation_scheme="dynamic")


def save_mxfp4(folder: Path) -> None:
    """A checkpoint of a small GPT-OSS whose experts are MXFP4 blocks with scales."""
    made = config("gpt_oss")
    made.intermediate_size = 2 * WIDTH
    tensors = _plain(folder, made)
    for key in [key for key in tensors if key.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        count, inputs, outputs = tensors.pop(key).shape
        shape = (count, outputs, inputs // WIDTH)
        tensors[f"{key}_blocks"] = torch.randint(0, 256, (*shape, WIDTH // 2), dtype=torch.uint8)
        tensors[f"{key}_scales"] = torch.randint(118, 124, shape, dtype=torch.uint8)
    _write(folder, tensors, quant_method="mxfp4", modules_to_not_convert=["lm_head"])


def spread(scales: Tensor, block: int, like: Tensor) -> Tensor:
    """A scale for each element of `like`."""
    return scales.repeat_interleave(block, 0).repeat_interleave(block, 1)[: like.shape[0], : like.shape[1]]


def by_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What transformers loads, dequantised; accelerate, that it asks for and doesn't use here, may be missing."""
    monkeypatch.setattr("transformers.quantizers.quantizer_finegrained_fp8.is_accelerate_available", lambda: True)
    fields = json.loads((folder / "config.json").read_text())["quantization_config"]
    kinds = {"fp8": transformers.FineGrainedFP8Config, "mxfp4": transformers.Mxfp4Config}
    asked = kinds[fields["quant_method"]](dequantize=True)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=asked, dtype="auto")


def _plain(folder: Path, made: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def _write(folder: Path, tensors: dict[str, Tensor], **quantisation: Any) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "quantization_config": quantisation}))
