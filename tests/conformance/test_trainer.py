"""transformers' own route, with what the extra `runtime` installs: a plan of planc, `from_pretrained` and the Trainer.

Two ranks that share their batches against one process: losses and gradient norms of three steps, and what is saved.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import planc
from tests.proof.models import VOCABULARY, build
from tests.runtime.ranks import run_ranks

accelerate = pytest.importorskip("accelerate", reason="the extra `runtime` brings it")
STEPS = 3


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Twelve rows of token ids."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self._rows = torch.randint(1, VOCABULARY, (12, 8), generator=generator)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def trained(folder: Path, out: Path, config: Any, batch: int) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step; the model is saved to `out`."""
    # accelerate 1.15 knows parallel sizes on GPUs and their like alone; of CPU ranks it refuses the kind, and no more.
    accelerate.ParallelismConfig._validate_accelerator = lambda *_: None
    options = {} if config is None else {"distributed_config": config}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options)
    arguments = TrainingArguments(
        output_dir=str(out / "runs"), max_steps=STEPS, per_device_train_batch_size=batch, logging_steps=1,
        optim="sgd", learning_rate=0.01, lr_scheduler_type="constant", save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
    trainer.train()
    trainer.save_model(str(out))
    return [(log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]


def on_a_rank(folder: Path, out: Path, plan: dict[str, Any], batch: int) -> list[tuple[float, float]]:
    return trained(folder, out, planc.distributed_config(plan, folder), batch)


@pytest.mark.ranks
def test_the_trainer_takes_a_plan(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    build("qwen3_moe").save_pretrained(folder)
    plan = {"target": "trainer", "tp_size": 2, "ep_size": 2, "ep_implementation": "all_reduce"}
    expected = run_ranks(1, trained, folder, tmp_path / "whole", None, 2)[0]
    assert len(expected) == STEPS
    for found in run_ranks(2, on_a_rank, folder, tmp_path / "sharded", plan, 2):
        assert found == [pytest.approx(step, rel=1e-4) for step in expected]
    whole, saved = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "sharded"))
    assert whole.keys() == saved.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(saved[name], tensor, rtol=1e-4, atol=1e-5)
