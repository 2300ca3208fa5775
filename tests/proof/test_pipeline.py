"""Pipeline stages, alone and with tensor parallelism: which layers a stage keeps, its forward, and generation."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh

import planc
from planc.ir.operations import SplitStages
from planc.program.program import Program
from planc.program.stages import stage_ranges
from tests.proof.cases import Case, Programs, layout
from tests.proof.on_ranks import KnownMeshes, applied, differing_shards, error, fresh
from tests.runtime.ranks import run_ranks

REFUSAL = r"(?i)pipeline|pp_size"
CASES = (
    Case("llama", layout("pp2·tp2"), config=(("num_hidden_layers", 3),)),
    Case("llama-tied", layout("pp4"), config=(("num_hidden_layers", 5),)),
    Case("qwen3_moe", layout("pp2·tp2")),
    Case("gpt_oss", layout("pp2·tp2")),
)


@pytest.mark.parametrize(
    ("layers", "stages", "ranges"),
    [
        (32, 3, ((0, 11), (11, 22), (22, 32))),  # the example of transformers' `layer_range_for_rank`
        (4, 4, ((0, 1), (1, 2), (2, 3), (3, 4))),
        (5, 4, ((0, 2), (2, 3), (3, 4), (4, 5))),
        (3, 1, ((0, 3),)),
    ],
)
def test_stage_ranges(layers: int, stages: int, ranges: tuple[tuple[int, int], ...]) -> None:
    assert stage_ranges(layers, stages) == ranges


def batch() -> Tensor:
    return torch.randint(1, 96, (2, 6), generator=torch.Generator().manual_seed(1))


def runs(cases: list[tuple[Case, Program]]) -> dict[str, Any]:
    """Of each case: parameters that transformers shards or keeps otherwise, logits' error, equal generation."""
    meshes, found = KnownMeshes(), {}
    for case, program in cases:
        mesh = meshes.of(case.layout)
        model, other = applied(case, program, mesh)
        ids = batch()
        options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
        with torch.no_grad():
            whole = fresh(case)
            logits = model(input_ids=ids, use_cache=False).logits
            found[str(case)] = {
                "shards": differing_shards(model, other),
                "error": error(logits, whole(input_ids=ids, use_cache=False).logits),
                "theirs": error(other(input_ids=ids, use_cache=False).logits, logits),
                "embedded": error(
                    model(inputs_embeds=whole.get_input_embeddings()(ids), use_cache=False).logits, logits
                ),
                "generates": torch.equal(model.generate(ids, **options), whole.generate(ids, **options)),
            }
    return found


@pytest.mark.ranks
def test_stages_compute_what_one_process_computes() -> None:
    programs = Programs()
    for rank, found in enumerate(run_ranks(4, runs, [(case, programs.of(case)) for case in CASES])):
        assert found.keys() == {str(case) for case in CASES}
        for name, result in found.items():
            assert result["shards"] == [] and result["generates"] is True, (rank, name)
            assert max(result["error"], result["theirs"], result["embedded"]) < 1e-5, (rank, name)


def fails_there(case: Case) -> str:
    """How transformers' own application of the layout ends."""
    meshes = KnownMeshes().of(case.layout)
    torch.distributed.barrier()  # rank 0 keeps the store that the others make their groups with
    try:
        model = fresh(case)
        config: Any = DistributedConfig(pp_size=case.layout.pp_size, tp_size=case.layout.tp_size)
        type(model).maybe_distribute_model(model, config, TransformersDeviceMesh(meshes.dense, meshes.expert))
    except KeyError as error:
        return f"KeyError: {error.args[0]}"
    return ""


@pytest.mark.ranks
def test_transformers_cant_put_stages_and_tensor_parallelism_together() -> None:
    """Known in 5.24.0, and the reason why the shards above are compared with `stages_then_tensors`."""
    ended = run_ranks(4, fails_there, CASES[0])
    assert [message.partition(":")[0] for message in ended] == ["KeyError"] * 4


def test_a_stage_keeps_its_modules_alone() -> None:
    case = CASES[1]
    stages = [operation for operation in Programs().of(case).operations if isinstance(operation, SplitStages)]
    assert [(s.layers, s.ranges, s.first, s.last) for s in stages] == [
        (
            "model.layers",
            ((0, 2), (2, 3), (3, 4), (4, 5)),
            ("model.embed_tokens",),
            ("model.embed_tokens", "model.norm", "lm_head"),
        )
    ]


@pytest.mark.parametrize(
    ("model", "sizes", "code"),
    [
        ("llama-3.1-8b", {"pp_size": 2, "fsdp_size": 2}, "PL209"),
        ("llama-3.1-8b", {"pp_size": 2, "dp_replicate_size": 2}, "PL209"),
        ("qwen3-30b-a3b", {"pp_size": 2, "tp_size": 2, "ep_size": 2}, "PL210"),
        ("llama-3.1-8b", {"pp_size": 64}, "PL211"),
        ("gpt_neox", {"pp_size": 2}, "PL212"),
    ],
)
def test_what_transformers_refuses_is_refused_by_check(model: str, sizes: dict[str, int], code: str) -> None:
    report = planc.check(None, {"model": model, **sizes})
    assert code in [diagnostic.code for diagnostic in report.diagnostics] and not report.ok


def test_transformers_refuses_it_as_well() -> None:
    """The first three of those above, in transformers' own words."""
    configs = ({"pp_size": 2, "fsdp_size": 2}, {"pp_size": 2, "dp_replicate_size": 2})
    for sizes in configs:
        with pytest.raises(ValueError, match=REFUSAL):
            DistributedConfig(**sizes)
    with pytest.raises(ValueError, match=REFUSAL):
        config = DistributedConfig(pp_size=2, tp_size=2, ep_size=2)
        fresh(Case("qwen3_moe", layout("tp2")))._resolve_parallel_plans(config)
