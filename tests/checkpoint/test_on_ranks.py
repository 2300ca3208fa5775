"""Checkpoints on gloo ranks: each reads its own bytes only, and what is saved is what one process would have saved."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file

from tests.checkpoint.on_ranks import compiled, fail_and_go_on, load_and_save, resume_elsewhere
from tests.runtime.models import build
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks

# A vocabulary of 97 and shards of all kinds: packed (phi3), per-expert checkpoints, dispatched experts, replicas,
# tied weights under FSDP2 and on two pipeline stages. Half of them in bfloat16.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 97},
    "llama-tied-biased": {},
    "qwen3_moe": {"vocab_size": 97},
    "mixtral": {},
    "phi3": {},
    "deepseek_v3": {},
    "gpt_oss": {},
}
IN_BFLOAT16 = ("qwen3_moe", "phi3")
LAYOUTS: list[tuple[str, dict[str, int]]] = [
    ("llama", {"tp_size": 4}),
    ("llama", {"tp_size": 2, "fsdp_size": 2}),
    ("llama", {"fsdp_size": 4}),
    ("llama-tied-biased", {"tp_size": 2, "fsdp_size": 2}),
    ("llama-tied-biased", {"tp_size": 2, "pp_size": 2}),
    ("qwen3_moe", {"tp_size": 4}),
    ("qwen3_moe", {"tp_size": 2, "fsdp_size": 2, "ep_size": 4}),
    ("qwen3_moe", {"tp_size": 2, "dp_replicate_size": 2}),
    ("mixtral", {"fsdp_size": 4, "ep_size": 4}),
    ("phi3", {"tp_size": 2, "fsdp_size": 2}),
    ("deepseek_v3", {"tp_size": 2, "fsdp_size": 2, "ep_size": 2}),
    ("gpt_oss", {"tp_size": 4, "ep_size": 4}),
]
# Save at one layout, resume at the other.
RESUMED: list[tuple[str, dict[str, int], dict[str, int]]] = [
    ("qwen3_moe-97", {"tp_size": 2, "fsdp_size": 2}, {"tp_size": 4, "ep_size": 4}),
    ("phi3-fp32", {"tp_size": 2, "fsdp_size": 2}, {"tp_size": 4}),
    ("llama-tied-biased", {"tp_size": 4}, {"tp_size": 2, "dp_replicate_size": 2}),
    ("llama-tied-biased", {"fsdp_size": 4}, {"tp_size": 2, "fsdp_size": 2}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of every model, as transformers saves it."""
    found = tmp_path_factory.mktemp("checkpoints")
    for name, changes in MODELS.items():
        model = build(name, **changes)
        (model.bfloat16() if name in IN_BFLOAT16 else model).save_pretrained(found / name)
    build("qwen3_moe", vocab_size=97).save_pretrained(found / "qwen3_moe-97")
    build("phi3").save_pretrained(found / "phi3-fp32")
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


def test_loaded_and_saved_at_every_layout(folder: Path, tmp_path: Path) -> None:
    cases = [(name, folder / name, compiled(folder / name, None, **sizes)) for name, sizes in LAYOUTS]
    for number, rank in enumerate(run_ranks(4, load_and_save, cases, tmp_path / "ours", timeout=400)):
        for case, found in rank.items():
            assert found["shards"] == [], (number, case)
            assert found["gathered"] == [], (number, case)
            assert found["read"] == found["held"] > 0, (number, case)
    for number, (name, sizes) in enumerate(LAYOUTS):
        cls = getattr(transformers, transformers.AutoConfig.from_pretrained(folder / name).architectures[0])
        theirs = tmp_path / "theirs" / str(number)
        cls.from_pretrained(folder / name, dtype="auto").save_pretrained(theirs, max_shard_size=20_000)
        ours = files(tmp_path / "ours" / str(number))
        assert ours == files(theirs), (name, sizes)
        assert len(ours) > 3


def test_training_goes_on_at_another_layout(folder: Path, tmp_path: Path) -> None:
    cases = [
        (name, folder / name, compiled(folder / name, None, **first), compiled(folder / name, None, **second))
        for name, first, second in RESUMED
    ]
    found = run_ranks(4, resume_elsewhere, cases, tmp_path, timeout=400)[0]
    assert len(found) == len(RESUMED)
    for case, result in found.items():
        saved, loaded = result["names"]
        assert saved == loaded, case
        assert sum("exp_avg_sq" in name for name in saved) > 10
        assert result["unequal"] == [], case
        assert result["step"] == 2
        assert result["moved"] > 1e-3, case
        wrong = {name: error for name, error in result["errors"].items() if not error < 2e-5}
        assert not wrong, case
        assert all(options["lr"] == 3e-3 and options["betas"] == (0.8, 0.9) for options in result["options"])


def test_a_full_disk_ends_no_rank_and_says_the_same_on_all(folder: Path, tmp_path: Path) -> None:
    name = "llama"
    program = compiled(folder / name, None, tp_size=2)
    ranks = run_ranks(2, fail_and_go_on, folder / name, program, tmp_path, timeout=200)
    assert ranks[0] == ranks[1]
    assert "File too large" in ranks[0]["weights"]
    assert f"can't save {tmp_path}/weights/model-0000" in ranks[0]["weights"]
    assert "rank 0" in ranks[0]["state"]
    assert "training.json is damaged" in ranks[0]["damaged"]
    assert sorted(os.listdir(tmp_path)) == ["state", "weights"]
    assert len(files(tmp_path / "weights")) > 3


PLANC = [sys.executable, "-m", "planc"]


def planc(*words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run([*PLANC, *map(str, words)], capture_output=True, text=True, timeout=300, env=environment)


def test_planc_apply_loads_and_saves(folder: Path, tmp_path: Path) -> None:
    source = folder / "qwen3_moe"
    run = planc("apply", source, "--tp-size", 2, "--checkpoint", source, "--save", tmp_path / "saved", "--json")
    assert run.returncode == 0, run.stderr
    ranks = json.loads(run.stdout)["ranks"]
    transformers.Qwen3MoeForCausalLM.from_pretrained(source, dtype="auto").save_pretrained(tmp_path / "theirs")
    assert files(tmp_path / "saved") == files(tmp_path / "theirs")
    # Both ranks together read what the model holds, and once more what they both hold.
    whole = sum(tensor.nbytes for tensor in load_file(source / "model.safetensors").values())
    assert whole / 2 < ranks[0]["bytes_read"] < whole * 0.6


def test_planc_apply_refuses_a_damaged_checkpoint_once_for_all_ranks(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder / "llama", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    run = planc("apply", broken, "--tp-size", 2, "--save", tmp_path / "saved")
    assert run.returncode == 2
    lines = [line for line in run.stderr.splitlines() if line.startswith("planc: ")]
    assert len(lines) == 1, run.stderr
    assert f"{weights} is damaged or truncated: `" in lines[0]
    assert not (tmp_path / "saved").exists()
