"""What transformers' Trainer lacks for a model that was sharded before it came: resuming, and counting metrics once."""

import functools
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import recursively_apply
from torch import Tensor
from transformers import PreTrainedModel, Trainer

from planc.runtime.checkpoint.training import load_training, save_training
from planc.runtime.marking import keep_name

T = TypeVar("T", bound=Trainer)
# A folder and a file in the checkpoints of the Trainer.
STATE_FOLDER, SCHEDULER_FILE = "planc", "scheduler.pt"
# Where the scheduler's state has the names of the parameters in each group.
GROUPS = "planc.groups"


def prepare_trainer(trainer: T) -> T:
    """Let `trainer` save and resume the training of its sharded model, and evaluate each row once; returns `trainer`.

    transformers 5.24.0 takes such a model with `save_only_model=True` alone: make the Trainer, or TRL's SFTTrainer, so.
    Its checkpoints then hold, beside what they hold anyway, the optimizer (`planc.save_training`), scheduler and random
    states. `trainer.train(resume_from_checkpoint=True)` resumes, at another layout or in one process, too, and
    `load_best_model_at_end` works. Evaluation gathers from one rank of each tensor-parallel group, where the Trainer
    counts all of them, but for the rows of the last batch. With label smoothing labels are shifted under FSDP, too.
    """
    changed: Any = trainer
    if isinstance(changed.model, PreTrainedModel):
        keep_name(changed.model)
    changed.args.save_only_model = False
    changed._save_optimizer_and_scheduler = functools.partial(_save, changed)
    changed._load_optimizer_and_scheduler = functools.partial(_load, changed)
    # The weights come with the optimizer, once there is one.
    changed._load_from_checkpoint = lambda *_: None
    changed._load_best_model = functools.partial(_load_best, changed)
    if changed.get_tp_size() > 1:
        changed.evaluation_loop = functools.partial(_evaluate, changed, changed.evaluation_loop)
    return trainer


def _save(trainer: Any, output_dir: str) -> None:
    folder = Path(output_dir)
    save_training(trainer.model, _bare(trainer.optimizer), folder / STATE_FOLDER, trainer.state.global_step)
    if trainer.args.should_save:
        state = {**trainer.lr_scheduler.state_dict(), GROUPS: _groups(trainer)}
        torch.save(state, folder / SCHEDULER_FILE)


def _load(trainer: Any, checkpoint: str | None) -> None:
    if checkpoint is None:
        return
    load_training(trainer.model, _bare(trainer.optimizer), Path(checkpoint) / STATE_FOLDER)
    state = torch.load(Path(checkpoint) / SCHEDULER_FILE, weights_only=True)
    saved = state.pop(GROUPS)
    places = _places(saved, _groups(trainer))
    # Schedulers keep a list for some numbers, with one for each group.
    regrouped = {
        key: [value[place] for place in places] if isinstance(value, list) and len(value) == len(saved) else value
        for key, value in state.items()
    }
    trainer.lr_scheduler.load_state_dict(regrouped)


def _groups(trainer: Any) -> list[list[str]]:
    """The names of the parameters in each of the optimizer's groups; the Trainer makes others at other layouts."""
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    return [[names[id(p)] for p in group["params"]] for group in trainer.optimizer.param_groups]


def _places(saved: list[list[str]], wanted: list[list[str]]) -> list[int]:
    """For each group the saved one that its first parameter was in; the first for a group without any."""
    place_of = {name: place for place, names in enumerate(saved) for name in names}
    return [place_of[names[0]] if names else 0 for names in wanted]


def _load_best(trainer: Any) -> None:
    load_training(trainer.model, None, Path(trainer.state.best_model_checkpoint) / STATE_FOLDER)


def _bare(optimizer: Any) -> Any:
    """torch's optimizer, out of accelerate's."""
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer


def _evaluate(trainer: Any, usual: Any, *args: Any, **kwargs: Any) -> Any:
    # The loop puts the usual function back at its end.
    trainer.gather_function = functools.partial(_gather_once, trainer.accelerator, trainer.get_tp_size())
    return usual(*args, **kwargs)


def _gather_once(accelerator: Any, tp_size: int, data: Any) -> Any:
    """As `Accelerator.gather_for_metrics`, from the first rank of each tensor-parallel group.

    Source: `accelerate/accelerator.py` (1.15.0), which cuts the rows that fill up the last batch by their number, as if
    no two ranks had the same.
    """
    state, world_size = accelerator.gradient_state, accelerator.num_processes
    filled = state.remainder if state.end_of_dataloader and state.remainder > 0 else None

    def once(gathered: Tensor) -> Tensor:
        of_ranks = gathered.reshape(world_size, len(gathered) // world_size, *gathered.shape[1:])
        return of_ranks[::tp_size].flatten(0, 1)[:filled]

    return recursively_apply(once, accelerator.gather(data))
