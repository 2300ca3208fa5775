"""Saving in one process: what transformers itself writes, and a folder that is never half written."""

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import planc
from planc.runtime.checkpoint import replacing, saving
from planc.runtime.errors import CheckpointError
from tests.checkpoint.support import copy_of
from tests.runtime.models import build


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


@contextmanager
def file_limit(count: int) -> Iterator[None]:
    """No file may grow beyond `count` bytes: what a full disk does to whoever writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("loaded", [False, True], ids=["made", "loaded"])
@pytest.mark.parametrize("size", ["50GB", 30_000])
@pytest.mark.parametrize("name", ["llama-tied-biased", "qwen3_moe", "deepseek_v3", "hrm_text", "qwen3_vl_moe"])
def test_the_same_files(name: str, size: int | str, loaded: bool, tmp_path: Path) -> None:
    model = copies(name)
    if loaded:
        model.save_pretrained(tmp_path / "first")
        model = type(model).from_pretrained(tmp_path / "first")
    model.save_pretrained(tmp_path / "theirs", max_shard_size=size)
    planc.save_pretrained(model, tmp_path / "ours", max_shard_size=size)
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@cache
def copies(name: str) -> Any:
    return copy_of(name) if name in ("hrm_text", "qwen3_vl_moe") else build(name)


def test_models_that_arent_of_transformers(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[3].weight = model[2].weight
    planc.save_pretrained(model, tmp_path / "plain")
    found = load_file(tmp_path / "plain" / "model.safetensors")
    expected = model.state_dict()
    assert found.keys() == expected.keys() - {"3.weight"}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_other_files_of_the_folder_stay_and_old_weights_go(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    planc.save_pretrained(build("llama"), folder, max_shard_size=20_000)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "runs").mkdir()
    (folder / "runs" / "log").write_text("1")
    (folder / "link").symlink_to("tokenizer.json")
    planc.save_pretrained(build("llama", seed=1), folder)
    assert sorted(os.listdir(folder)) == [
        "config.json", "generation_config.json", "link", "model.safetensors", "runs", "tokenizer.json",
    ]  # fmt: skip
    assert (folder / "runs" / "log").read_text() == "1"
    assert (folder / "link").is_symlink()


def test_replacing_where_folders_cant_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_exchange", lambda first, second: False)
    folder = tmp_path / "model"
    for seed in range(2):
        planc.save_pretrained(build("llama", seed=seed), folder)
    assert torch.equal(load_file(folder / "model.safetensors")["lm_head.weight"], build("llama", seed=1).lm_head.weight)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("limit", [0, 1_000, 50_000])
def test_a_full_disk_names_file_and_tensor_and_loses_nothing(limit: int, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    planc.save_pretrained(build("llama"), folder)
    before = files(folder)
    with file_limit(limit), pytest.raises(CheckpointError) as caught:
        planc.save_pretrained(build("llama", seed=1), folder)
    message = str(caught.value)
    assert f"can't save {folder}/model.safetensors" in message
    assert "File too large" in message
    assert "`" in message or limit < 3_000  # the header itself doesn't fit
    assert files(folder) == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(CheckpointError, match="there is a file of that name"):
        planc.save_pretrained(build("llama"), tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_quantised_models_and_adapters_are_refused(tmp_path: Path) -> None:
    model = build("llama")
    model.hf_quantizer = object()
    with pytest.raises(CheckpointError, match="quantised"):
        planc.save_pretrained(model, tmp_path / "model")
    del model.hf_quantizer
    model._hf_peft_config_loaded = True
    with pytest.raises(CheckpointError, match="adapters"):
        planc.save_pretrained(model, tmp_path / "model")


# Where a save may be killed: each call of one of these is a moment.
STEPS = [(saving, step) for step in ("prepare_beside", "write_all", "write_tensor", "keep_others", "put_in_place")]
STEPS += [(replacing, "_exchange"), (replacing.shutil, "rmtree")]


def constant(value: float) -> nn.Module:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


def saved_by_a_child(model: nn.Module, folder: Path, moment: int) -> int:
    """Save in a process of its own that is killed before step `moment` (never: 0); its status, how many steps else."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        steps = 0

        def dying(step: Any) -> Any:
            def wrapped(*arguments: Any, **named: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return step(*arguments, **named)

            return wrapped

        for module, name in STEPS:
            setattr(module, name, dying(getattr(module, name)))
        saving.save_pretrained(model, folder)
        os._exit(steps)
    finally:
        os._exit(255)


def test_killed_at_any_moment_the_folder_is_the_old_or_the_new(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    old, new = constant(1.0), constant(2.0)
    planc.save_pretrained(old, folder)
    (folder / "notes.txt").write_text("mine")
    steps = saved_by_a_child(new, folder, 0)
    assert 10 < steps < 255
    seen = []
    for moment in range(1, steps + 1):
        planc.save_pretrained(old, folder)
        assert saved_by_a_child(new, folder, moment) == -signal.SIGKILL
        values = {float(v) for t in load_file(folder / "model.safetensors").values() for v in t.flatten()}
        assert len(values) == 1, moment
        assert (folder / "notes.txt").read_text() == "mine"
        seen.extend(values)
    # The exchange is one step; what comes after it removes the old folder.
    assert seen == sorted(seen)
    assert set(seen) == {1.0, 2.0}
    planc.save_pretrained(old, folder)
    assert os.listdir(tmp_path) == ["model"]


def test_the_index_is_that_of_transformers(tmp_path: Path) -> None:
    model = build("qwen3_moe")
    planc.save_pretrained(model, tmp_path / "ours", max_shard_size=30_000)
    index = json.loads((tmp_path / "ours" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_parameters"] == model.num_parameters()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in model.state_dict().values())


def test_progress_is_told(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    saving.save_pretrained(build("llama"), tmp_path / "model", progress=lambda *step: seen.append(step))
    assert seen == [(number, 21) for number in range(1, 22)]


def test_generation_config_is_read_and_kept(tmp_path: Path) -> None:
    """What the checkpoint says of generation holds after loading, and is what transformers would save of it."""
    given = {"temperature": 0.3, "do_sample": True, "top_k": 7, "eos_token_id": [2, 5]}
    build("llama").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    (tmp_path / "tokenizer.json").write_text("{}")
    theirs = type(build("llama")).from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "theirs")
    model: Any = planc.from_pretrained(tmp_path, tp_size=1)
    assert {name: getattr(model.generation_config, name) for name in given} == given
    assert model.generation_config.to_dict() == theirs.generation_config.to_dict()
    planc.save_pretrained(model, tmp_path)  # where it came from
    saved = files(tmp_path / "theirs")["generation_config.json"]
    assert (tmp_path / "generation_config.json").read_bytes() == saved
    assert {name: json.loads(saved)[name] for name in given} == given
    assert (tmp_path / "tokenizer.json").read_text() == "{}"


def test_a_checkpoint_without_a_generation_config(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    theirs = type(build("llama")).from_pretrained(tmp_path)
    model: Any = planc.from_pretrained(tmp_path, tp_size=1)
    assert model.generation_config.to_dict() == theirs.generation_config.to_dict()


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_a_damaged_generation_config_is_named(content: str, tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        planc.from_pretrained(tmp_path, tp_size=1)
