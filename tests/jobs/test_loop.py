"""The loop of docs/training.md, run as it stands at several layouts, against the same script in one process."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.tensor import DTensor

import planc
from planc.runtime.errors import RunError
from tests.proof.models import VOCABULARY, batches, build
from tests.proof.one_process import step
from tests.runtime.ranks import run_ranks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
SCRIPT = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))["train.py"]
ROWS = f"""
import torch

rows = list(torch.randint(3, {VOCABULARY}, (24, 8), generator=torch.Generator().manual_seed(3)))
"""
# Ranks, model, plan.
JOBS: dict[str, tuple[int, str, str]] = {
    "tp2": (2, "llama", "tp_size: 2"),
    "fsdp2": (2, "llama", "fsdp_size: 2"),
    "dp_replicate2·tp2": (4, "llama", "dp_replicate_size: 2\ntp_size: 2"),
    "tp2·fsdp2·ep4": (4, "qwen3_moe", "tp_size: 2\nfsdp_size: 2\nep_size: 4"),
    "tp2·ep2": (2, "gpt_oss", "tp_size: 2\nep_size: 2"),
}
_LINE = re.compile(r"step (\d+): loss ([\d.]+), gradient norm ([\d.]+)")


def folder_for(model: str, plan: str, folder: Path) -> Path:
    build(model).save_pretrained(folder / "model")
    (folder / "plan.yaml").write_text(f"{plan}\n")
    (folder / "rows.py").write_text(ROWS)
    (folder / "train.py").write_text(SCRIPT)
    return folder


def trained(folder: Path, program: Any = None) -> list[tuple[float, float]]:
    """Each step's loss, averaged over the batches, and gradient norm; what it saves lies in the folder."""
    import contextlib
    import io
    import os

    os.chdir(folder)
    sys.path.insert(0, str(folder))
    if program is not None:
        os.environ["PLANC_PROGRAM"] = str(program)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path("train.py")
    found = torch.tensor([[float(loss), float(norm)] for _, loss, norm in _LINE.findall(out.getvalue())])
    if dist.is_initialized():
        dist.all_reduce(found)
        found /= dist.get_world_size()
        dist.barrier()
    sys.path.remove(str(folder))
    sys.modules.pop("rows", None)
    return [tuple(row) for row in found.tolist()]


@pytest.mark.ranks
@pytest.mark.parametrize(("count", "model", "plan"), JOBS.values(), ids=JOBS)
def test_the_loop_trains_as_one_process(
    count: int, model: str, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    expected = trained(folder_for(model, "{}", tmp_path / "one"))
    many = folder_for(model, plan, tmp_path / "many")
    planc.compile(str(many / "model"), str(many / "plan.yaml")).save(many / "program.json")
    assert len(expected) == 6 and max(norm for _, norm in expected) > 0.5
    for found in run_ranks(count, trained, many, many / "program.json"):
        # The loss of the mean over batches and the norm, to the last digit that the script prints but one.
        assert torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=1e-3, atol=1e-3)
    one, saved = (load_file(tmp_path / f / "trained" / "model.safetensors") for f in ("one", "many"))
    assert one.keys() == saved.keys()
    assert max(float((one[name] - saved[name]).abs().max()) for name in one) < 5e-5


ORDERS = (1.0, 2.0, 3.0, float("inf"))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: g.full_tensor() if isinstance(g, DTensor) else g.clone() for name, g in found.items()}


def clipped(folder: Path, plan: dict[str, Any]) -> list[str]:
    """What differs from one process, of the norm of each order and of the gradients that were clipped by it."""
    wrong = []
    model = planc.apply(build("qwen3_moe"), planc.compile(str(folder), plan))
    for order in ORDERS:
        whole = build("qwen3_moe")
        step(whole, batches(1))
        step(model, batches(1))
        expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1, order)
        found = planc.clip_grad_norm_(model.parameters(), 0.1, order)
        if not torch.allclose(found, expected, rtol=1e-4):
            wrong.append(f"norm of order {order}: {float(found)} instead of {float(expected)}")
        own = gradients(model)
        for name, gradient in gradients(whole).items():
            if not torch.allclose(own[name], gradient, rtol=1e-3, atol=1e-6):
                wrong.append(f"order {order}: {name}")
    (parameter, *_) = model.parameters()
    parameter.grad.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="nothing was clipped"):
        planc.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)
    dist.barrier()
    return wrong


@pytest.mark.ranks
@pytest.mark.parametrize("plan", [{"tp_size": 2}, {"tp_size": 2, "ep_size": 2}, {"fsdp_size": 2}], ids=str)
def test_norms_of_every_order(plan: dict[str, Any], tmp_path: Path) -> None:
    build("qwen3_moe").config.save_pretrained(tmp_path)
    assert run_ranks(2, clipped, tmp_path, plan) == [[], []]


def test_groups_keep_settings_and_order() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert planc.parameter_groups(first.parameters()) == [{"params": [*first.parameters()]}]
    given = [{"params": first.parameters(), "lr": 0.1}, {"params": second.weight, "lr": 0.2}]
    assert planc.parameter_groups(given) == [
        {"params": [*first.parameters()], "lr": 0.1},
        {"params": [second.weight], "lr": 0.2},
    ]


def test_a_single_process_reads_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert (planc.data_rank(), planc.data_world_size()) == (0, 1)


def test_before_any_program_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PLANC_PROGRAM", raising=False)
    with pytest.raises(RunError, match="no program was applied yet"):
        planc.data_rank()
    program = planc.compile("llama-3.1-8b", tp_size=2, fsdp_size=2, dp_replicate_size=2)
    assert (planc.data_rank(program), planc.data_world_size(program)) == (2, 4)
