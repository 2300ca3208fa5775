"""A rank that dies in the middle of a step, or runs something else: every rank ends soon, with one message."""

import os
import signal
from typing import Any

import pytest

import planc
from planc.layouts.layout import Layout
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.program import Program
from planc.runtime.errors import RunError
from planc.runtime.session import Session
from tests.proof.cases import Case, compiled, layout
from tests.proof.models import batches
from tests.proof.on_ranks import fresh
from tests.proof.one_process import step
from tests.runtime.ranks import start_ranks
from tests.runtime.test_agreement import ends

pytestmark = pytest.mark.ranks
EXPERTS = Case("qwen3_moe", layout("tp2·fsdp2·ep4", "all_to_all"))
DENSE = Case("llama", layout("dp_replicate2·fsdp2"))
STAGES = Case("llama", layout("pp2·tp2"))


def program(case: Case) -> Program:
    return compiled(Manifest(build_manifest(fresh(case), case.model)), case)


def trains(case: Case, compiled: Program, dying: int | None = None, backward: bool = False) -> Any:
    """A step on every rank, and a second one in which `dying` is killed after one of two layers."""
    try:
        model: Any = planc.apply(fresh(case), compiled)
    except RunError as error:
        return str(error), error.status
    session: Any = Session.current
    ids = batches(1)[0]
    try:
        if case.layout.pp_size == 1:
            step(model, [ids])
        if session.place.rank == dying:
            die_after(model.model.layers[0 if not backward else 1], backward)
        step(model, [ids])
    except RuntimeError as error:  # gloo notices a peer that is gone
        stopped = session.fail(error)
        return str(stopped), stopped.status
    session.close()
    return "done", 0


def die_after(module: Any, backward: bool) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if backward:
        module.register_full_backward_hook(die)
    else:
        module.register_forward_hook(die)


@pytest.mark.parametrize(("case", "backward"), [(EXPERTS, False), (DENSE, True)], ids=str)
def test_a_rank_that_dies_in_a_step_ends_all(case: Case, backward: bool) -> None:
    outcomes = start_ranks(4, trains, case, program(case), 2, backward, init=False, timeout=60)
    assert outcomes.pop(2).status == -signal.SIGKILL
    ((told, status),) = ends(outcomes)
    assert status == 1
    assert told.startswith("rank 2 (process ") and told.endswith(") ended without a word")


def test_a_stage_that_dies_ends_all() -> None:
    outcomes = start_ranks(4, trains, STAGES, program(STAGES), 1, init=False, timeout=60)
    assert outcomes.pop(1).status == -signal.SIGKILL
    ((told, status),) = ends(outcomes)
    assert (status, told.startswith("rank 1 (process ")) == (1, True)


def differs(own: dict[int, tuple[Case, Program]], case: Case, compiled: Program) -> Any:
    return trains(*own.get(int(os.environ["RANK"]), (case, compiled)))


def test_another_program() -> None:
    other = Case("qwen3_moe", layout("tp2·fsdp2·ep4"))
    expected, found = program(EXPERTS), program(other)
    outcomes = start_ranks(4, differs, {3: (other, found)}, EXPERTS, expected, init=False, timeout=60)
    message = (
        f"the ranks were not started with the same program: ranks 0 to 2 have {expected.hash[:12]}; "
        f"rank 3 has {found.hash[:12]}"
    )
    assert ends(outcomes) == {(message, 2)}


def test_another_model() -> None:
    """A rank with a model that its program wasn't compiled for says so to all."""
    other = Case("qwen3_moe", EXPERTS.layout, config=(("num_hidden_layers", 1),))
    compiled = program(EXPERTS)
    outcomes = start_ranks(4, differs, {1: (other, compiled)}, EXPERTS, compiled, init=False, timeout=60)
    ((told, status),) = ends(outcomes)
    assert status == 2
    assert told.startswith("rank 1: the program was compiled for `qwen3_moe` (Qwen3MoeForCausalLM, manifest ")
    assert told.endswith(": compile the plan again for this model")


def test_another_world_size() -> None:
    outcomes = start_ranks(2, trains, EXPERTS, program(EXPERTS), init=False, timeout=60)
    message = "the program is for 4 processes (its layout), but 2 were started"
    assert ends(outcomes) == {(message, 2)}


def test_another_layout_on_one_rank() -> None:
    """Two programs of the same world size whose collectives would wait for each other."""
    other = Case("qwen3_moe", Layout(fsdp_size=4, ep_size=4))
    outcomes = start_ranks(4, differs, {0: (other, program(other))}, EXPERTS, program(EXPERTS), init=False, timeout=60)
    ((told, status),) = ends(outcomes)
    assert (status, told.partition(":")[0]) == (2, "the ranks were not started with the same program")
