"""Threads and processes as ranks."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld

from planc.verify.observing import Observation
from planc.verify.ranks import processes, threads
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


def test_a_deadlock_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_DEADLOCK_SECONDS", 0.5)
    with RankThreads(2) as ranks:
        outcome = ranks.run(lambda rank: total(rank) if rank == 0 else Observation())
        assert outcome.failure is not None
        assert "wait for each other" in outcome.failure.error
        assert ranks.run(total).failure is None


@pytest.mark.parametrize("kind", KINDS)
def test_messages_arrive(kind: type[RankThreads | RankProcesses]) -> None:
    def work(rank: int) -> Observation:
        value = torch.tensor([float(rank)])
        for sender in (1, 2):
            if rank == 0:
                dist.recv(value, src=sender)
            elif rank == sender:
                dist.send(value, dst=0)
        return Observation(weights={"value": value})

    ranks: Ranks = kind(3)
    try:
        outcome = ranks.observe(work)
    finally:
        ranks.close()
    assert [float(r.weights["value"]) for r in outcome.results] == [2.0, 1.0, 2.0]


def test_waiting_for_a_message_that_nobody_sends_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_DEADLOCK_SECONDS", 0.5)

    def work(rank: int) -> Observation:
        if rank == 0:
            dist.recv(torch.ones(1), src=1)
        return Observation()

    with RankThreads(2) as ranks:
        failure = ranks.run(work).failure
        assert failure is not None
        assert not failure.lost
        assert ranks.run(total).failure is None


@pytest.mark.parametrize("other_fails", [False, True])
def test_a_rank_that_never_ends_is_left_behind(other_fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SECONDS", 0.2)
    monkeypatch.setattr(threads, "_RELEASED_SECONDS", 0.2)
    stuck: list[threading.Thread] = []

    def work(rank: int) -> Observation:
        if rank == 0:
            stuck.append(threading.current_thread())
            while True:
                time.sleep(0.01)
        if other_fails:
            raise InPhaseError("training", "ValueError: no")
        return Observation()

    with RankThreads(2) as ranks:
        failure = ranks.run(work).failure
        monkeypatch.undo()
        assert failure is not None
        assert (failure.lost, failure.rank) == (not other_fails, int(other_fails))
        assert ranks.run(total).failure is None
        stuck[0].join(timeout=10)
        assert not stuck[0].is_alive()
        assert ranks.run(total).failure is None


@pytest.mark.ranks
def test_processes_that_never_end_say_nothing_about_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SECONDS", 0.5)
    outcome = RankProcesses(1).observe(lambda rank: time.sleep(60) or Observation())
    assert outcome.failure is not None
    assert outcome.failure.lost


@pytest.mark.ranks
def test_processes_compute_though_their_parent_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SECONDS", 30.0)
    before = torch.get_num_threads()
    large = torch.ones(512, 512)
    try:
        torch.set_num_threads(2)
        large.mul(2.0).exp().sum()
        assert RankProcesses(2).observe(lambda rank: Observation(weights={"value": (large * 2).exp()})).failure is None
    finally:
        torch.set_num_threads(before)


def test_an_interpreter_that_lost_its_frames_says_nothing_about_the_plan() -> None:
    def error_of(thing: object, name: str) -> Exception:
        try:
            getattr(thing, name)
        except AttributeError as error:
            return error
        raise AssertionError

    assert InPhaseError.of("training", error_of({}, "f_code")).lost
    assert not InPhaseError.of("training", error_of({}, "weight")).lost


def test_pools_leave_no_process_group_behind() -> None:
    """Whether or not pools of other tests are still open."""
    before, hook = dist.distributed_c10d._world, sys.excepthook
    with RankThreads(2), RankThreads(3):
        assert isinstance(dist.distributed_c10d._world, ThreadLocalWorld)
    assert dist.distributed_c10d._world is before
    assert sys.excepthook is hook
    assert not dist.is_initialized()


def test_observations_survive_the_wire() -> None:
    sent = Observation({"a.b": torch.arange(3.0)}, {"0.logits": torch.ones(2, 2).double()}, loss=0.1)
    received = decode(encode(sent))
    assert isinstance(received, Observation)
    assert received.loss == 0.1
    assert torch.equal(received.weights["a.b"], sent.weights["a.b"])
    assert torch.equal(received.inference["0.logits"], sent.inference["0.logits"])
    error = decode(encode(InPhaseError("apply", "x", lost=True)))
    assert isinstance(error, InPhaseError)
    assert (error.phase, error.error, error.lost) == ("apply", "x", True)
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
def test_processes_give_the_verdict_of_threads(model: dict[str, str], plan: Any, tmp_path: Path) -> None:
    simulated, processes = (run(tmp_path, model, plan, {"tp_size": 2}, kind) for kind in ("threads", "gloo"))
    assert simulated.verdict == processes.verdict
    assert simulated.reloaded == processes.reloaded
    assert [(d.code, d.key, d.message) for d in simulated.diagnostics] == [
        (d.code, d.key, d.message) for d in processes.diagnostics
    ]
