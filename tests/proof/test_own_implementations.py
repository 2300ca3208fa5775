"""Expert implementations of users, registered or installed; Mega MoE compiles anywhere and is refused here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import planc
from planc.program.program import Program
from planc.runtime.errors import ApplicationError
from planc.runtime.experts.registry import implementation, register
from planc.runtime.interpreter import apply_operations
from planc.styles import registry
from tests.proof.cases import Case, Programs, layout
from tests.proof.on_ranks import KnownMeshes, error, fresh, prove
from tests.proof.own_implementations import CountedAllToAll, MaskedSum
from tests.proof.test_layouts import verdict
from tests.runtime.ranks import run_ranks

PLAN = {"model": "qwen3-30b-a3b", "tp_size": 2, "ep_size": 2}
ENTRY_POINT = "[planc.ep_implementations]\ninstalled-sum = tests.proof.own_implementations:MaskedSum\n"
MEGAMOE = Case("qwen3_moe", layout("tp2·ep2", "deepgemm_megamoe"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an implementation that an installed package brings along."""
    info = tmp_path / "own_experts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-experts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._entry_points.cache_clear()
    yield "installed-sum"
    registry._entry_points.cache_clear()


def findings(name: str) -> list[str]:
    return [
        d.code
        for d in planc.check(None, {**PLAN, "ep_implementation": name}).diagnostics
        if d.severity.value == "error"
    ]


def test_unknown_names_are_refused() -> None:
    assert findings("no-such-thing") == ["PL208"]
    with pytest.raises(
        ApplicationError, match=r"no expert implementation `no-such-thing`; registered ones are .*all_to_all"
    ):
        implementation("no-such-thing")


def test_registered_names_are_known() -> None:
    register("counted", CountedAllToAll)
    assert findings("counted") == []
    assert implementation("counted") is CountedAllToAll
    program = planc.compile(None, {**PLAN, "ep_implementation": "counted"})
    assert {o.implementation for o in program.operations if o.op == "dispatch_experts"} == {"counted"}


def test_own_names_cant_be_taken() -> None:
    with pytest.raises(ValueError, match="`all_reduce`"):
        register("all_reduce", CountedAllToAll)


def test_entry_points_are_known(installed: str) -> None:
    assert findings(installed) == []
    assert implementation(installed) is MaskedSum


def test_those_of_transformers_are_known() -> None:
    from transformers.distributed.expert_parallel import AllReduceEP, EPImplementationInterface

    EPImplementationInterface.register("theirs", AllReduceEP)
    assert implementation("theirs") is AllReduceEP


def trains(cases: list[tuple[Case, Program]]) -> Any:
    register("counted", CountedAllToAll)
    return prove(cases), CountedAllToAll.calls


def infers(case: Case, program: Program, path: str) -> Any:
    """The error of logits with an implementation of an installed package."""
    sys.path.insert(0, path)
    model = apply_operations(fresh(case), program.operations, KnownMeshes().of(case.layout))
    ids = torch.arange(1, 8)[None]
    with torch.no_grad():
        return error(model(input_ids=ids).logits, fresh(case)(input_ids=ids).logits)


@pytest.mark.ranks
def test_they_run(installed: str, tmp_path: Path) -> None:
    register("counted", CountedAllToAll)
    programs = Programs()
    case = Case("qwen3_moe", layout("fsdp2·ep2", "counted"))
    for found, calls in run_ranks(2, trains, [(case, programs.of(case))]):
        assert verdict([found[str(case)]]) == ""
        # Two layers; one forward without and two with gradients.
        assert calls == 6
    case = Case("qwen3_moe", layout("tp2·ep2", installed))
    assert max(run_ranks(2, infers, case, programs.of(case), str(tmp_path))) < 1e-5


def megamoe(program: Program) -> str:
    meshes = KnownMeshes().of(MEGAMOE.layout)
    torch.distributed.barrier()  # rank 0 keeps the store that the others make their groups with
    try:
        apply_operations(fresh(MEGAMOE), program.operations, meshes)
    except ApplicationError as refusal:
        return str(refusal)
    return "applied"


@pytest.mark.ranks
def test_megamoe_compiles_and_is_refused_without_its_hardware() -> None:
    program = Programs().of(MEGAMOE)
    assert [o.implementation for o in program.operations if o.op == "dispatch_experts"] == ["deepgemm_megamoe"] * 2
    message = (
        "`ep_implementation: deepgemm_megamoe` can't run here: it needs GPUs of compute capability 10.0 (SM100); "
        "the package `deep_gemm` isn't installed; "
        'the model must be loaded with `experts_implementation="deepgemm_megamoe"` and FP4 experts'
    )
    assert run_ranks(2, megamoe, program) == [message] * 2
