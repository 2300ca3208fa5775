"""A model that planc sharded and one that transformers' loader sharded: the same to whoever looks, saved alike."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from transformers.distributed.utils import TransformersDeviceMesh

import planc
from planc.runtime.session import Session
from tests.proof.models import build
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks
WHOLE_MLP = {f"model.layers.*.mlp.{name}": "replicate" for name in ("gate_proj", "up_proj", "down_proj")}
JOBS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "tp2, tied": (2, "llama-tied", {"tp_size": 2}),
    "tp2, rules of one's own": (2, "llama", {"tp_size": 2, "tp_plan": WHOLE_MLP}),
    "fsdp2, rules and options": (
        2,
        "llama",
        {"fsdp_size": 2, "fsdp_plan": {"model.layers.*.mlp": "free_full_weight"}, "fsdp_mixed_precision": True},
    ),
    "tp2·fsdp2": (4, "qwen3_moe", {"tp_size": 2, "fsdp_size": 2}),
    "tp2·fsdp2·ep4": (4, "gpt_oss", {"tp_size": 2, "fsdp_size": 2, "ep_size": 4}),
    "tp2·ep2": (2, "qwen3_moe", {"tp_size": 2, "ep_size": 2, "ep_implementation": "all_reduce"}),
    "dp_replicate2·fsdp2": (4, "llama", {"dp_replicate_size": 2, "fsdp_size": 2}),
    "pp2": (2, "llama", {"pp_size": 2}),
}
# What `nn.Module` keeps, and `fully_shard`; what only their pipeline leaves; a default, written out; planc's refusal of
# DDP.
NOT_COMPARED = ("_parameters", "_modules", "_buffers", "_forward_", "__composable_api", "_pp_", "_use_kernels", "_ddp_")


def shown(value: Any) -> Any:
    """`value` so that it can be sent and compared: meshes by their axes and ranks."""
    if isinstance(value, TransformersDeviceMesh):
        return [shown(value._dense_mesh), shown(value._expert_mesh)]
    if isinstance(value, DeviceMesh):
        return [value.mesh_dim_names, value.mesh.tolist()]
    return value if isinstance(value, dict | int | str | None) else repr(value)


def attributes(model: Any) -> dict[str, Any]:
    """All that the instance has, without its tensors and replaced methods, and its config."""
    own = {name: value for name, value in vars(model).items() if not callable(getattr(type(model), name, None))}
    kept = {name: shown(value) for name, value in own.items() if not name.startswith(NOT_COMPARED)}
    return kept | {f"config.{name}": shown(value) for name, value in vars(model.config).items()}


def tensors(model: Any) -> dict[str, Any]:
    """How each parameter is held: its shard's shape, its mesh and its placements."""
    found = {}
    for name, held in model.named_parameters():
        local = held.to_local() if isinstance(held, DTensor) else held
        mesh = (shown(held.device_mesh), repr(held.placements)) if isinstance(held, DTensor) else None
        found[name] = (tuple(local.shape), str(local.dtype), mesh)
    return found


def generated(model: Any, cache: str | None) -> Any:
    ids = torch.arange(1, 8)[None]
    return model.generate(ids, max_new_tokens=4, do_sample=False, cache_implementation=cache).tolist()


def both(folder: Path, plan: dict[str, Any], out: Path) -> tuple[list[Any], list[Any]]:
    """Attributes and tensors of both models, and what ours generates; ours is saved to `out`."""
    config = planc.distributed_config(plan, folder, training=False)
    theirs = AutoModelForCausalLM.from_pretrained(folder, distributed_config=config, attn_implementation="eager")
    ours: Any = planc.from_pretrained(folder, plan, attn_implementation="eager")
    found = [attributes(theirs), tensors(theirs)], [attributes(ours), tensors(ours)]
    ours.save_pretrained(out)
    if plan.keys() <= {"tp_size", "tp_plan"}:
        # A static cache is made for this rank's heads, by the plan and the size that the model carries.
        found[1].append(generated(ours, "static"))
        found[0].append(generated(AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager"), None))
    torch.distributed.barrier()
    assert Session.current is not None
    Session.current.close()
    return found


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_it_has_what_their_loader_leaves(job: tuple[int, str, dict[str, Any]], tmp_path: Path) -> None:
    count, name, plan = job
    model = build(name)
    model.save_pretrained(tmp_path / "model")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager")
    whole.save_pretrained(tmp_path / "whole")
    for theirs, ours in run_ranks(count, both, tmp_path / "model", plan, tmp_path / "saved"):
        assert ours == theirs
    expected, saved = ({f.name: f.read_bytes() for f in (tmp_path / w).iterdir()} for w in ("whole", "saved"))
    assert json.loads(saved["config.json"]) == json.loads(expected["config.json"])
    assert saved == expected
