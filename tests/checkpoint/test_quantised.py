"""Quantised checkpoints: read as transformers dequantises them, or refused in one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import planc
from planc.model.building.builder import build_model
from planc.model.sources import load_manifest
from planc.program.placements import whole
from planc.runtime.checkpoint.checking import check_folder
from planc.runtime.checkpoint.quantisation import READ, QuantisedError, in_config, method_name
from planc.runtime.checkpoint.reading import read_checkpoint
from planc.runtime.errors import CheckpointError, RunError
from planc.runtime.loading import load_weights
from tests.checkpoint.quantised import by_transformers, save_fp8, save_mxfp4, spread
from tests.checkpoint.support import picked, regions

KINDS = ("llama", "qwen3_moe", "mxfp4")


def saved(kind: str, folder: Path) -> Path:
    if kind == "mxfp4":
        save_mxfp4(folder)
    else:
        save_fp8(folder, kind)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_regions_are_those_of_what_transformers_dequantises(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(kind, tmp_path)
    expected = by_transformers(folder, monkeypatch).state_dict()
    model = build_model(str(folder))
    source = read_checkpoint(model, folder)
    assert source.unexpected == () and set(source) == set(expected)
    compared = 0
    for key, tensor in expected.items():
        assert source.dtype(key) == tensor.dtype and torch.equal(source.read(key, whole(source.shape(key))), tensor), (
            key
        )
        for region in regions(source.shape(key)):
            assert torch.equal(source.read(key, region), picked(tensor, region)), (key, region)
            compared += 1
    assert compared > 4 * len(expected)
    assert in_config(model.config.to_dict()) is None
    assert check_folder(folder, load_manifest(str(folder), cache=False)) == []


def test_a_rank_reads_the_codes_of_its_shards_alone(tmp_path: Path) -> None:
    folder = saved("mxfp4", tmp_path)
    source = read_checkpoint(build_model(str(folder)), folder)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    everything, before = whole(source.shape(name)), source.bytes_read
    source.read(name, everything)
    for_all, before = source.bytes_read - before, source.bytes_read
    assert for_all == sum(
        load_file(folder / "model.safetensors")[f"{name}_{part}"].nbytes for part in ("blocks", "scales")
    )
    from planc.layouts.placement import Shard

    source.read(name, everything.shard(Shard(0), 4, 1))
    assert source.bytes_read - before == for_all / 4


def test_the_last_block_may_be_cut_short(tmp_path: Path) -> None:
    """A dim of 32 and 48 in blocks of 20, as DeepSeek V3's `kv_a_proj_with_mqa` has 576 in blocks of 128."""
    save_fp8(tmp_path, "llama", block=20)
    stored = load_file(tmp_path / "model.safetensors")
    source = read_checkpoint(build_model(str(tmp_path)), tmp_path)
    name = "model.layers.0.mlp.down_proj.weight"
    codes, scales = stored[name], stored[f"{name}_scale_inv"]
    assert codes.shape == (32, 48) and scales.shape == (2, 3)
    expected = (codes.float() * spread(scales, 20, codes)).bfloat16()
    for region in (whole((32, 48)), *regions((32, 48))):
        assert torch.equal(source.read(name, region), picked(expected, region)), region


def test_missing_scales_are_refused(tmp_path: Path) -> None:
    for kind, part, said in (
        ("llama", "weight_scale_inv", "not converted"),
        ("mxfp4", "proj_scales", "scales are missing"),
    ):
        folder = saved(kind, tmp_path / kind)
        tensors = load_file(folder / "model.safetensors")
        save_file({n: t for n, t in tensors.items() if not n.endswith(part)}, folder / "model.safetensors")
        model = build_model(str(folder))
        with pytest.raises(CheckpointError, match=said):
            load_weights(model, read_checkpoint(model, folder), torch.device("cpu"))


def quantised_by(folder: Path, **fields: object) -> Path:
    """A checkpoint whose config says so."""
    from tests.runtime.models import build

    build("llama").save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": fields}))
    return folder


@pytest.mark.parametrize(
    ("fields", "method"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes_4bit"),
        ({"quant_method": "of-tomorrow"}, "of-tomorrow"),
    ],
)
def test_other_methods_are_refused_in_one_sentence(fields: dict[str, object], method: str, tmp_path: Path) -> None:
    folder = quantised_by(tmp_path, **fields)
    with pytest.raises(QuantisedError, match=rf"weights quantised by `{method}`, which planc doesn't read"):
        read_checkpoint(build_model(str(folder)), folder)
    (found,) = check_folder(folder, load_manifest(str(folder), cache=False))
    assert found.code == "PL808" and f"`{method}`" in found.message


def test_all_methods_that_are_read_are_methods_of_transformers() -> None:
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    for method in READ:
        assert "dequantize" in AUTO_QUANTIZER_MAPPING[method].get_load_operations(None)
    assert method_name({"quant_method": "fp8"}) == "fp8"


def test_the_folder_says_how_it_is_quantised(tmp_path: Path) -> None:
    """Not the config of the model that is loaded from it."""
    quantised = quantised_by(tmp_path / "quantised", quant_method="gptq")
    plain = quantised_by(tmp_path / "plain")
    model = build_model(str(quantised))
    assert read_checkpoint(model, plain).quantization is None
    assert in_config(model.config.to_dict()) is None, "its weights are plain now"
    with pytest.raises(QuantisedError):
        read_checkpoint(build_model(str(plain)), quantised)


def test_a_model_that_keeps_codes_is_refused(tmp_path: Path) -> None:
    folder = quantised_by(tmp_path)
    model: nn.Module = build_model(str(folder))
    model.hf_quantizer, model.quantization_method = object(), "bitsandbytes"  # type: ignore[assignment]
    with pytest.raises(RunError, match="quantised by `bitsandbytes`, and planc shards plain ones"):
        planc.apply(model, planc.compile(str(folder), tp_size=1))


@pytest.mark.ranks
def test_ranks_read_mxfp4_and_save_what_transformers_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ours, theirs = saved("mxfp4", tmp_path / "source"), tmp_path / "ours", tmp_path / "theirs"
    words = ["apply", source, "--tp-size", 2, "--ep-size", 2, "--checkpoint", source, "--forward", "--save", ours]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, "-m", "planc", *map(str, words)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("weights quantised by `mxfp4` are dequantised as they are read") == 1
    by_transformers(source, monkeypatch).save_pretrained(theirs)
    for file in sorted(os.listdir(theirs)):
        assert (ours / file).read_bytes() == (theirs / file).read_bytes(), file
    assert sorted(os.listdir(ours)) == sorted(os.listdir(theirs))


def test_random_weights_of_a_quantised_model_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from planc.runtime.pretrained import prepare

    folder = quantised_by(tmp_path, quant_method="gptq")
    prepared = prepare(str(folder), planc.compile(str(folder), tp_size=1), None, None)
    assert "the model is quantised by `gptq`, and these weights are not" in capsys.readouterr().err
    assert in_config(prepared.model.config.to_dict()) is None
