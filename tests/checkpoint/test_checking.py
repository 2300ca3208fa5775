"""`planc checkpoint check`: whole folders pass, and each fault is found, named, and said once."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from planc.cli.commands.checkpoint import command
from planc.diagnostics.diagnostic import Diagnostic
from planc.model.sources import load_manifest
from planc.runtime.checkpoint.checking import check_folder
from planc.runtime.checkpoint.index import INDEX_NAME
from tests.runtime.models import build


def saved(name: str, folder: Path, size: int | str = "50GB") -> Path:
    build(name).save_pretrained(folder, max_shard_size=size)
    return folder


def found(folder: Path) -> list[Diagnostic]:
    return check_folder(folder, load_manifest(str(folder), cache=False))


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    all_of_them = {**load_file(folder / "model.safetensors"), **tensors}
    save_file({n: t for n, t in all_of_them.items() if t is not None}, folder / "model.safetensors")


@pytest.mark.parametrize("name", ["llama", "llama-tied-biased", "qwen3_moe", "deepseek_v3", "phi3"])
def test_what_transformers_saves_is_whole(name: str, tmp_path: Path) -> None:
    assert found(saved(name, tmp_path, 30_000)) == []


def test_each_kind_of_fault(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(
        folder,
        **{
            "model.norm.weight": None,
            "extra.weight": torch.ones(2),
            "lm_head.weight": torch.ones(96, 31),
            "model.layers.0.mlp.up_proj.weight": torch.ones(48, 32, dtype=torch.int8),
        },
    )
    save_file({"a": torch.ones(1)}, folder / "consolidated.safetensors")
    said = {(d.code, d.message) for d in found(folder)}
    assert said == {
        ("PL803", "the checkpoint lacks `model.norm.weight`"),
        ("PL804", "the model has no place for model.safetensors: `extra.weight`"),
        ("PL805", "model.safetensors: `lm_head.weight` has shape [96, 31], the model [96, 32]"),
        ("PL806", "model.safetensors: `model.layers.0.mlp.up_proj.weight` holds int8, the model float32"),
        ("PL807", "consolidated.safetensors is not read: model.safetensors is the checkpoint"),
    }


def test_a_missing_expert(tmp_path: Path) -> None:
    folder = saved("qwen3_moe", tmp_path)
    change(folder, **{"model.layers.1.mlp.experts.5.up_proj.weight": None})
    (only,) = found(folder)
    assert only.code == "PL803"
    assert "needs the tensor `model.layers.1.mlp.experts.5.up_proj.weight`" in only.message


def test_many_alike_are_counted(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    change(folder, **{name: None for name in load_file(folder / "model.safetensors") if "mlp" in name})
    missing = found(folder)
    assert len(missing) == 6
    assert missing[-1].message == "the checkpoint lacks 1 more tensors, such as `model.layers.1.mlp.down_proj.weight`"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("damage", "says"), [(truncate, "is damaged or truncated: `"), (Path.unlink, "is missing (")], ids=["cut", "gone"]
)
def test_damaged_files_name_file_and_tensor(damage: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    folder = saved("llama", tmp_path, 20_000)
    files = sorted(folder.glob("model-*.safetensors"))
    for file in files[:2]:
        damage(file)
    problems = found(folder)
    assert [d.code for d in problems] == ["PL802", "PL802"]
    for file, problem in zip(files, problems, strict=False):
        assert problem.message.startswith(f"{file.name} {says}")
        assert problem.targets and f"`{problem.targets[0]}`" in problem.message


def test_an_index_that_promises_more(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path, 20_000)
    index = json.loads((folder / INDEX_NAME).read_text())
    file = index["weight_map"]["model.norm.weight"]
    index["weight_map"]["model.other.weight"] = file
    (folder / INDEX_NAME).write_text(json.dumps(index))
    assert [d.message for d in found(folder)] == [
        f"{file} lacks the tensor `model.other.weight`, which {INDEX_NAME} places there"
    ]


def test_the_command(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    runner = CliRunner()
    assert "1 checkpoint checked: nothing to report" in runner.invoke(command, ["check", str(folder)]).output
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    result = runner.invoke(command, ["check", str(folder), "--output-format", "json"], standalone_mode=False)
    assert result.return_value == 2
    (report,) = [json.loads(result.output)] if result.output.startswith("{") else json.loads(result.output)
    assert report["diagnostics"][0]["code"] == "PL801"
    assert "pickled checkpoints (.bin) are not read" in report["diagnostics"][0]["message"]


def test_plain_folders_need_no_torch(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    load_manifest(str(folder))
    code = (
        "import sys; from planc.cli.main import run; "
        f"status = run(['checkpoint', 'check', {str(folder)!r}]); "
        "print(status, [m for m in ('torch', 'transformers', 'safetensors') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.endswith("0 []\n"), result.stdout + result.stderr
