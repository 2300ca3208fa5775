"""Threads and processes as ranks."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from planc.verify.observing import Observation
from planc.verify.ranks.outcome import InPhaseError, Ranks
from planc.verify.ranks.processes import RankProcesses
from planc.verify.ranks.threads import RankThreads
from planc.verify.ranks.wire import decode, encode
from tests.verify.running import run

KINDS = [RankThreads, pytest.param(RankProcesses, marks=pytest.mark.ranks)]


def total(rank: int) -> Observation:
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    return Observation(weights={"total": value})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_collectives_meet(kind: type[RankThreads | RankProcesses], count: int) -> None:
    ranks: Ranks = kind(count)
    try:
        outcome = ranks.observe(total)
    finally:
        ranks.close()
    assert outcome.failure is None
    assert [float(r.weights["total"]) for r in outcome.results] == [count * (count + 1) / 2] * count


@pytest.mark.parametrize("kind", KINDS)
def test_one_failure_releases_the_others(kind: type[RankThreads | RankProcesses]) -> None:
    def work(rank: int) -> Observation:
        if rank == 1:
            raise InPhaseError("training", "ValueError: no")
        return total(rank)

    ranks: Ranks = kind(2)
    try:
        failure = ranks.observe(work).failure
        again = ranks.observe(total)
    finally:
        ranks.close()
    assert failure is not None
    assert (failure.rank, failure.phase, failure.error) == (1, "training", "ValueError: no")
    assert again.failure is None


def test_a_deadlock_is_a_failure() -> None:
    with RankThreads(2) as ranks:
        outcome = ranks.run(lambda rank: total(rank) if rank == 0 else Observation())
        assert outcome.failure is not None
        assert "wait for each other" in outcome.failure.error
        assert ranks.run(total).failure is None


def test_pools_leave_no_process_group_behind() -> None:
    before = dist.distributed_c10d._world
    with RankThreads(2), RankThreads(3):
        assert dist.distributed_c10d._world is not before
    assert dist.distributed_c10d._world is before
    assert not dist.is_initialized()


def test_observations_survive_the_wire() -> None:
    sent = Observation({"a.b": torch.arange(3.0)}, {"0.logits": torch.ones(2, 2).double()}, loss=0.1)
    received = decode(encode(sent))
    assert isinstance(received, Observation)
    assert received.loss == 0.1
    assert torch.equal(received.weights["a.b"], sent.weights["a.b"])
    assert torch.equal(received.inference["0.logits"], sent.inference["0.logits"])
    error = decode(encode(InPhaseError("apply", "x")))
    assert isinstance(error, InPhaseError)
    assert (error.phase, error.error) == ("apply", "x")
    assert isinstance(decode(b""), InPhaseError)


SAME = [
    ({"model_type": "llama"}, None),
    ({"model_type": "apertus"}, None),
    ({"model_type": "llama"}, {"tp_plan": {"model.layers.*.mlp": "all_reduce"}}),
    ({"model_type": "llama"}, {"tp_plan": {"model.layers.*.self_attn.o_proj": "colwise"}}),
    ({"model_type": "qwen3"}, {"tp_plan": {"model.layers.*.self_attn.q_norm": "replicate"}}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(("model", "plan"), SAME, ids=lambda value: json.dumps(value)[:40])
def test_processes_give_the_verdict_of_threads(model: dict[str, str], plan: object, tmp_path: Path) -> None:
    threads, processes = (run(tmp_path, model, plan, {"tp_size": 2}, kind) for kind in ("threads", "gloo"))
    assert threads.verdict == processes.verdict
    assert [(d.code, d.key, d.message) for d in threads.diagnostics] == [
        (d.code, d.key, d.message) for d in processes.diagnostics
    ]
