"""The rank side of `planc demo`: a small mixture-of-experts model on a few CPU ranks, against one process."""

import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planc.model.building.builder import build_manifest, build_model
from planc.model.manifest import Manifest
from planc.program.lower import lower
from planc.program.program import Program
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import resolve
from planc.runtime.apply import session, shard
from planc.runtime.errors import RunError
from planc.runtime.loading import load_weights, materialise_rest
from planc.runtime.sources import RandomWeights
from planc.syntax.parser import parse_plan

MODEL = "qwen3-30b-a3b"
# The architecture of the bundled model with all its kinds of layers, small enough for any machine.
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
}
# Large enough that experts show in the logits: with the usual 0.02 they contribute about 1e-7 of them.
STD = 0.2
BATCH = (2, 12)


def run(plan: Path) -> None:
    """Apply the plan to the small model on this rank, and print on rank 0 how far the logits of each one are off."""
    with session() as joined:
        if joined is None:
            raise RunError("the demo's ranks are started by `planc demo`")
        model = build_model(MODEL, config=SMALL).float()
        manifest = Manifest(build_manifest(model, name=MODEL))
        program = compile_for(manifest, plan)
        source = RandomWeights({name: tuple(t.shape) for name, t in model.state_dict().items()}, std=STD)
        reference = filled(copy.deepcopy(model), source)
        sharded = filled(shard(model, program, joined, manifest), source)
        own = joined.meshes(program.layout).rank("fsdp")
        error = relative(logits(sharded, sample(own)), logits(reference, sample(own)))
        rows: list[Any] | None = [None] * joined.place.world_size if joined.place.rank == 0 else None
        dist.gather_object((own, held(sharded), held(reference), error), rows)
        if rows is not None:
            print(json.dumps(rows))
        joined.close()


def compile_for(manifest: Manifest, plan: Path) -> Program:
    """The program of a plan file for the model of `manifest`; every rank compiles the same one."""
    parsed, _ = parse_plan(str(plan))
    if parsed is None:
        raise RunError(f"`{plan}` can't be read")
    return lower(parsed, resolve(parsed, manifest, derive_layout(parsed)), manifest)


def filled(model: nn.Module, source: RandomWeights) -> nn.Module:
    """`model` with the source's weights, of which this rank reads its shards."""
    device = torch.device("cpu")
    load_weights(model, source, device)
    materialise_rest(model, device)
    return model.eval()


def sample(index: int) -> Tensor:
    """The batch of data-parallel rank `index`."""
    return torch.randint(0, SMALL["vocab_size"], BATCH, generator=torch.Generator().manual_seed(index))


def logits(model: nn.Module, ids: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(input_ids=ids, use_cache=False).logits
    return result


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())


def held(model: nn.Module) -> int:
    """Parameters that this rank holds."""
    return sum(getattr(p, "_local_tensor", p).numel() for p in model.parameters())


def main(arguments: Sequence[str]) -> int:
    from planc.runtime.rank import leave

    try:
        run(Path(arguments[0]))
    except RunError as error:
        leave(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
