"""When ranks differ, or one is lost, every rank ends soon with the same message and the same status."""

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist

from planc.layouts.layout import Layout
from planc.runtime.agreement import Claim, Stopped, disagreement
from planc.runtime.errors import CheckpointError, RunError
from planc.runtime.session import Place
from tests.runtime.ranks import Outcome, start_ranks

TOLD = "planc: "


def joined(program: str = "a" * 64, manifest: str = "b" * 64, world_size: int | None = None) -> Any:
    """A session that agreed, with its process group."""
    from planc.runtime.session import Session

    place = Place.from_environment()
    assert place is not None
    session = Session.open(place)
    size = place.world_size if world_size is None else world_size
    try:
        session.agree(size, program, manifest, seconds=20)
        session.meshes(Layout(tp_size=size))
    except RunError as error:
        raise session.fail(error) from None
    return session


def message(function: Any, *args: Any) -> tuple[str, int] | None:
    """What a rank is told when it is stopped; None when it isn't."""
    try:
        session = function(*args)
    except Stopped as stopped:
        return str(stopped), stopped.status
    dist.barrier()
    session.close()
    return None


def same_program() -> Any:
    return message(joined)


def other_program() -> Any:
    return message(joined, "c" * 64 if os.environ["RANK"] == "2" else "a" * 64)


def other_model() -> Any:
    return message(joined, "a" * 64, "d" * 64 if os.environ["RANK"] == "0" else "b" * 64)


def fails_to_load() -> Any:
    """One rank can't read its weights while the others wait for it in a collective."""

    def load() -> Any:
        session = joined()
        if session.place.rank == 1:
            raise session.fail(CheckpointError("model.safetensors is truncated"))
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            raise session.fail(error) from None
        return session

    return message(load)


def killed() -> Any:
    """One rank dies while the others wait for it in a collective."""
    session = joined()
    if session.place.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:  # gloo notices a peer that is gone
        stopped = session.fail(error)
        return str(stopped), stopped.status
    return None


def left_early() -> Any:
    """A rank that is through with its work may leave before the others."""
    session = joined()
    if session.place.rank != 0:
        import time

        time.sleep(3)
    session.close()
    return None


def ends(outcomes: list[Outcome]) -> set[tuple[str, int]]:
    """The messages and statuses that ranks ended with."""
    found = set()
    for outcome in outcomes:
        lines = [line.removeprefix(TOLD) for line in outcome.stderr.splitlines() if line.startswith(TOLD)]
        if isinstance(outcome.result, tuple):
            found.add(outcome.result)
        else:
            found.add((lines[-1] if lines else "nothing", outcome.status or 0))
    return found


def test_ranks_that_agree_go_on() -> None:
    outcomes = start_ranks(4, same_program, init=False, timeout=60)
    assert [(o.result, o.failure, o.status) for o in outcomes] == [(None, None, 0)] * 4


def test_a_rank_may_be_done_before_the_others() -> None:
    outcomes = start_ranks(2, left_early, init=False, timeout=60)
    assert [(o.failure, o.status, o.stderr) for o in outcomes] == [(None, 0, "")] * 2


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            other_program,
            "the ranks were not started with the same program: ranks 0, 1, 3 have aaaaaaaaaaaa; rank 2 has "
            "cccccccccccc",
        ),
        (
            other_model,
            "the ranks were not started with the same model: rank 0 has dddddddddddd; ranks 1 to 3 have bbbbbbbbbbbb",
        ),
        (fails_to_load, "rank 1: model.safetensors is truncated"),
    ],
)
def test_one_message_on_every_rank(function: Any, expected: str) -> None:
    outcomes = start_ranks(4, function, init=False, timeout=60)
    assert ends(outcomes) == {(expected, 2)}


def test_a_rank_that_is_killed_ends_all() -> None:
    outcomes = start_ranks(4, killed, init=False, timeout=60)
    lost = outcomes.pop(1)
    assert lost.status == -signal.SIGKILL
    ((told, status),) = ends(outcomes)
    assert status == 1
    assert told.startswith("rank 1 (process ")
    assert told.endswith(") ended without a word")


def test_a_rank_of_another_world_ends_all() -> None:
    outcomes = start_ranks(3, same_program, init=False, timeout=60, environment={1: {"WORLD_SIZE": "2"}})
    ((told, status),) = ends(outcomes)
    assert status == 2
    assert told.startswith("the ranks were not started with the same world size: ")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "0"}, "WORLD_SIZE, MASTER_ADDR, MASTER_PORT is not"),
        ({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "must be numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "RANK=2 is not within"),
    ],
)
def test_variables_that_make_no_sense(environment: dict[str, str], expected: str) -> None:
    with pytest.raises(RunError, match=expected):
        Place.from_environment(environment)


def test_no_launcher_no_place() -> None:
    assert Place.from_environment({}) is None


def test_equal_claims_agree() -> None:
    claims = {rank: Claim(rank, 2, "p", "m", "host", rank) for rank in range(2)}
    assert disagreement(claims) is None
