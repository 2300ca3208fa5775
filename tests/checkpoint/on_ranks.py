"""What ranks do with checkpoints: load a folder at a layout, compare, save again."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.program.program import Program
from tests.checkpoint.support import picked


def compiled(folder: Path, plan: Any = None, **sizes: int) -> Program:
    """The program of the model in `folder`; made once, before ranks are started."""
    import planc

    return planc.compile(folder, plan, **sizes)


def sharded(folder: Path, program: Program) -> tuple[Any, int]:
    """The model of `folder` sharded by `program` with its weights, and the bytes that this rank read."""
    from planc.model.building.builder import build_model
    from planc.runtime.interpreter import apply_operations
    from planc.runtime.loading import load_weights, materialise_rest
    from planc.runtime.mesh import build_meshes
    from planc.runtime.pretrained import in_loading_dtypes, weights

    model = in_loading_dtypes(build_model(str(folder)))
    source = weights(model, folder, 0)
    model = apply_operations(model, program.operations, build_meshes(program.layout, "cpu"))
    loaded = load_weights(model, source, torch.device("cpu"))
    materialise_rest(model, torch.device("cpu"))
    return model.eval(), loaded.bytes_read


def wrong_shards(model: nn.Module, whole: dict[str, Tensor]) -> list[str]:
    """The parameters and buffers whose local part isn't that of the whole model."""
    from planc.runtime.loading import region_of

    found = []
    for name, tensor in model.state_dict().items():
        local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        if not torch.equal(local, picked(whole[name], region_of(tensor))):
            found.append(name)
    return found


def wrong_gathered(model: nn.Module, whole: dict[str, Tensor]) -> list[str]:
    """The parameters that DTensor doesn't gather to the whole: placement and bytes disagree."""
    gathered = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in model.state_dict().items()}
    return [name for name, tensor in gathered.items() if not torch.equal(tensor, whole[name])]


def shard_bytes(model: nn.Module, element: int) -> int:
    """What this rank's shards take in files of `element` bytes a value, tied tensors once."""
    seen = {id(p): (p._local_tensor if isinstance(p, DTensor) else p).numel() for p in model.parameters()}
    buffers = {name for name, _ in model.named_buffers()} & set(model.state_dict())
    return element * (sum(seen.values()) + sum(model.state_dict()[name].numel() for name in buffers))


def load_and_save(cases: list[tuple[str, Path, Program]], out: Path) -> dict[str, dict[str, Any]]:
    """Load and save each case; what is wrong, and how many bytes were read for how many held."""
    import transformers

    from planc.runtime.checkpoint import save_pretrained

    found = {}
    for number, (name, folder, program) in enumerate(cases):
        model, read = sharded(folder, program)
        config = transformers.AutoConfig.from_pretrained(folder)
        whole = getattr(transformers, config.architectures[0]).from_pretrained(folder, dtype="auto").state_dict()
        save_pretrained(model, out / str(number), max_shard_size=20_000)
        element = max(p.element_size() for p in model.parameters())
        found[f"{number} {name} {program.layout}"] = {
            "shards": wrong_shards(model, whole),
            "gathered": wrong_gathered(model, whole),
            "read": read,
            "held": shard_bytes(model, element),
        }
    return found


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Parameters and optimizer states gathered from the ranks, on rank 0; elsewhere without values."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    from planc.program.placements import whole
    from planc.runtime.checkpoint.distributed import ShardedTensors
    from planc.runtime.checkpoint.saving import saved_tensors

    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    local = {**saved_tensors(model), **{n: t for n, t in flat.items() if isinstance(t, Tensor)}}
    tensors = ShardedTensors(local)
    return {name: tensors.read(name, whole(tensors.share(name).shape)) for name in tensors.shares}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    from tests.runtime.models import batch

    model.train()
    for step in steps:
        ids = batch(seed=step)
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()


def adamw(model: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.8, 0.9), weight_decay=0.1)


def resume_elsewhere(cases: list[tuple[str, Path, Program, Program]], out: Path) -> dict[str, Any]:
    """Train two steps at one layout, save, go on; and resume at another layout with another optimizer."""
    from planc.runtime.checkpoint.training import load_training, save_training

    found: dict[str, Any] = {}
    for number, (name, folder, first, second) in enumerate(cases):
        model, _ = sharded(folder, first)
        optimizer = adamw(model)
        train(model, optimizer, range(2))
        save_training(model, optimizer, out / str(number), step=2)
        saved = whole_state(model, optimizer)
        train(model, optimizer, range(2, 4))
        expected = whole_state(model, optimizer)

        other, _ = sharded(folder, second)
        resumed = adamw(other, lr=1.0)
        step = load_training(other, resumed, out / str(number))
        loaded = whole_state(other, resumed)
        train(other, resumed, range(step, 4))
        result = whole_state(other, resumed)
        if torch.distributed.get_rank() == 0:
            found[f"{number} {name}"] = {
                "step": step,
                "names": (sorted(saved), sorted(loaded)),
                "unequal": [n for n in saved if not torch.equal(saved[n], loaded[n])],
                "errors": {n: float((result[n] - expected[n]).abs().max()) for n in expected},
                "moved": max(float((expected[n] - saved[n]).abs().max()) for n in saved),
                "options": [{k: v for k, v in g.items() if k != "params"} for g in resumed.param_groups],
            }
    return found


def fail_and_go_on(folder: Path, program: Program, out: Path) -> dict[str, Any]:
    """A disk that is full for rank 0 only, first for weights and then for training state; then a save that works."""
    from planc.runtime.checkpoint import save_pretrained
    from planc.runtime.checkpoint.training import load_training, save_training
    from planc.runtime.errors import CheckpointError
    from tests.checkpoint.test_saving import file_limit

    model, _ = sharded(folder, program)
    optimizer = adamw(model)
    train(model, optimizer, range(1))
    is_writer = torch.distributed.get_rank() == 0
    said: dict[str, Any] = {}
    for name, save in (
        ("weights", lambda: save_pretrained(model, out / "weights", max_shard_size=20_000)),
        ("state", lambda: save_training(model, optimizer, out / "state", step=1)),
    ):
        try:
            with file_limit(8_000 if is_writer else 10**9):
                save()
        except CheckpointError as error:
            said[name] = str(error)
        save()
    torch.distributed.barrier()
    if is_writer:
        (out / "state" / "training.json").write_text("{}")
    torch.distributed.barrier()
    try:
        load_training(model, optimizer, out / "state")
    except CheckpointError as error:
        said["damaged"] = str(error)
    return said
