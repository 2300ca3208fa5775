"""What accelerate, and by it the Trainer, must be told of a model that is sharded already."""

import os
from pathlib import Path
from typing import Any

from accelerate import Accelerator, ParallelismConfig
from accelerate.utils import DistributedType
from torch import nn
from transformers.distributed import DistributedConfig

from planc.program.program import Program
from planc.runtime.errors import RunError
from planc.runtime.marking import distributed_config

# What shards or copies a model once more.
_WRAPPERS = {
    DistributedType.FSDP: "FSDP",
    DistributedType.DEEPSPEED: "DeepSpeed",
    DistributedType.MEGATRON_LM: "Megatron-LM",
}


class ShardedParallelism(ParallelismConfig):  # type: ignore[misc]
    """The sizes of a sharded model for accelerate 1.15: who reads which batch, and that nothing is to be wrapped.

    It differs from accelerate's own in three things. Ranks on CPUs are legal. A model that is sharded by FSDP alone
    stays as it is, like one by TP, where accelerate would hand it to DDP. And where one process deals out the rows
    (`dispatch_batches`, the default for an `IterableDataset`) at TP with FSDP, accelerate refuses it, as it means to:
    by its own names of the axes it gives every rank the same rows.
    """

    # Read where accelerate decides whether DDP wraps the model: a sharded one is never wrapped.
    tp_enabled = True

    def _get_mesh(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        sizes = {"dp_shard": self.dp_shard_size, "tp": self.tp_size}
        names = [name for name, size in sizes.items() if size > 1]
        if len(names) == 2:
            # accelerate's dispatching loader looks for this name to refuse what it can't do.
            return ("dp_shard", "fsdp", "tp"), (self.dp_shard_size, 1, self.tp_size)
        return tuple(names), tuple(sizes[name] for name in names)

    def _validate_accelerator(self, accelerator: Accelerator) -> None:
        """Refuse, before anything is prepared, what would shard the model again, or miscount its ranks."""
        if (wrapper := _WRAPPERS.get(accelerator.distributed_type)) is not None:
            raise RunError(f"the model is sharded already: start the script without accelerate's {wrapper} config")
        if self.total_size != accelerator.num_processes:
            # It would scale every loss by `num_processes // tp_size`, to zero.
            raise RunError(
                f"the model is sharded over {self.total_size} processes, and accelerate sees "
                f"{accelerator.num_processes}: on CPUs set `ACCELERATE_USE_CPU=true`, or `use_cpu=True` in the "
                "arguments of the Trainer"
            )

    def __copy__(self) -> "ShardedParallelism":
        return self

    def __deepcopy__(self, memo: Any) -> "ShardedParallelism":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """As accelerate's own, without the mesh: the Trainer saves its arguments beside the weights."""
        return ParallelismConfig, (1, self.dp_shard_size, self.tp_size)


def parallelism_config(of: "nn.Module | Program | DistributedConfig | str | Path") -> ShardedParallelism | None:
    """What to give `Accelerator` and `TrainingArguments` as `parallelism_config`; None in one process.

    `of` is the model, sharded by planc or by transformers' loader, its `DistributedConfig`, or the program or its file.
    Raises `RunError` for a model that isn't sharded and for pipelines, whose stages accelerate can't train.
    """
    config: Any = of
    if isinstance(of, str | Path):
        config = distributed_config(Program.load(Path(of)))
    elif isinstance(of, Program):
        config = distributed_config(of)
    elif not isinstance(of, DistributedConfig):
        config = getattr(getattr(of, "config", None), "distributed_config", None)
        if not isinstance(config, DistributedConfig):
            if os.environ.get("WORLD_SIZE", "1") == "1":
                return None
            raise RunError("the model is not sharded: `planc.apply` or `planc.from_pretrained` comes first")
    if config.pp_size > 1:
        raise RunError("accelerate and the Trainer train no pipelines: use the ranks for `tp_size` or `fsdp_size`")
    if config.tp_size * config.dp_size == 1:
        return None
    # HSDP's replicas read batches of their own, as its shards do, and accelerate is not to know more.
    return ShardedParallelism(dp_replicate_size=1, dp_shard_size=config.dp_size, tp_size=config.tp_size)
