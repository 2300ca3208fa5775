"""Ranks agree before the first collective, and end together when one of them fails.

All of it goes through the launcher's key-value store: unlike a collective, a look into a store can't hang when a rank
is missing. Keys:

- `planc/claim/RANK`: what the rank is about to run;
- `planc/stop`: why everyone stops; the first one to write it is believed;
- `planc/seen/RANK`, `planc/done/RANK`: the rank has read that, or is through with its work;
- `planc/beat/RANK`: counted up by the rank's watchdog.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import monotonic, sleep

from torch.distributed.distributed_c10d import Store

from planc.runtime.errors import LOST_RANK, RunError

STOP = "planc/stop"
# How long a rank waits for the others to appear; they may still be importing torch from a slow disk.
JOIN_SECONDS = 300.0
# How long ranks that differ wait for the others, so that the message can tell of all of them.
SETTLE_SECONDS = 2.0
# How often a waiting rank looks again.
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Claim:
    """What a rank is about to run, and where it lives. `program` and `manifest` are hashes."""

    rank: int
    world_size: int
    program: str
    manifest: str
    host: str
    pid: int


class Stopped(RunError):  # noqa: N818
    """Some rank stopped the run; `str` of it and `status` are the same on every rank."""


def publish(store: Store, claim: Claim) -> None:
    """Say what this rank is about to run."""
    store.set(f"planc/claim/{claim.rank}", json.dumps(asdict(claim)))


def agree(store: Store, own: Claim, seconds: float = JOIN_SECONDS) -> dict[int, Claim]:
    """Wait for the claims of all ranks and compare them.

    Raises `Stopped` on every rank, with the same message, when they differ, when some rank stopped the run, or when
    one doesn't appear within `seconds`.
    """
    publish(store, own)
    claims = {own.rank: own}
    deadline, differing = monotonic() + seconds, 0.0
    while True:
        raise_if_stopped(store)
        for rank in range(own.world_size):
            if rank not in claims and store.check([f"planc/claim/{rank}"]):
                claims[rank] = Claim(**json.loads(store.get(f"planc/claim/{rank}")))
        message = disagreement(claims)
        if message is None and len(claims) == own.world_size:
            return claims
        if message is not None:
            differing = differing or monotonic()
            if len(claims) == own.world_size or monotonic() > differing + SETTLE_SECONDS:
                raise stop(store, message)
        if monotonic() > deadline:
            absent = ", ".join(str(rank) for rank in range(own.world_size) if rank not in claims)
            raise stop(store, f"rank {absent} did not appear within {seconds:.0f} s", LOST_RANK)
        sleep(LOOK_SECONDS)


def disagreement(claims: Mapping[int, Claim]) -> str | None:
    """How the ranks' claims differ, None where they don't."""
    for field, what in (("world_size", "world size"), ("manifest", "model"), ("program", "program")):
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, claim in sorted(claims.items()):
            ranks[str(getattr(claim, field))].append(rank)
        if len(ranks) > 1:
            told = "; ".join(f"{_list(found)} {_short(value, field)}" for value, found in ranks.items())
            return f"the ranks were not started with the same {what}: {told}"
    return None


def _list(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    consecutive = ranks == list(range(ranks[0], ranks[-1] + 1))
    told = f"{ranks[0]} to {ranks[-1]}" if consecutive else ", ".join(map(str, ranks))
    return f"ranks {told} have"


def _short(value: str, field: str) -> str:
    return value if field == "world_size" else value[:12]


def stop(store: Store, message: str, status: int | None = None) -> Stopped:
    """Tell every rank to stop, unless one was faster; returns what all of them are told."""
    error = RunError(message) if status is None else RunError(message, status)
    told = store.compare_set(STOP, "", json.dumps({"message": message, "status": error.status}))
    return _stopped(told)


def raise_if_stopped(store: Store) -> None:
    """Raises `Stopped` when some rank told everyone to stop."""
    if store.check([STOP]):
        raise _stopped(store.get(STOP))


def _stopped(told: bytes) -> Stopped:
    content = json.loads(told)
    return Stopped(content["message"], int(content["status"]))


def wait_until_seen(store: Store, own: int, world_size: int, seconds: float = 3.0) -> None:
    """Wait until the other ranks have read why everyone stops, lest a launcher kills them before they could say it."""
    store.set(f"planc/seen/{own}", "1")
    keys = [f"planc/seen/{rank}" for rank in range(world_size)]
    deadline = monotonic() + seconds
    while monotonic() < deadline and not store.check(keys):
        sleep(LOOK_SECONDS)
