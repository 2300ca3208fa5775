"""What the first forwards of a sharded model show: ranks that were given different inputs or seeds, late parameters.

All of it is silent otherwise: the ranks of a tensor-parallel group compute parts of one result, and where their inputs
or dropout masks differ, or a module has come that the program doesn't know, the parts don't belong together.
"""

import functools
import hashlib
import itertools
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store

from planc.program.program import Program
from planc.runtime.agreement import LOOK_SECONDS, Stopped, raise_if_stopped, stop
from planc.runtime.errors import RunError
from planc.runtime.interpreter.forward import positional_names
from planc.runtime.session import Session

# How many forwards are watched; 0 watches none.
VARIABLE = "PLANC_WATCHED_FORWARDS"
WATCHED = 3
# A rank that doesn't come to its forward is not waited for: the collectives inside wait for it anyway.
PATIENCE_SECONDS = 60.0
# Sums of floating point inputs that differ by less, relative to their size, are taken to be equal.
TOLERANCE = 1e-3
# What wrappers put into the names of parameters, which stay the same parameters.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
# Methods of transformers' models that change what is sharded, and what to do instead.
_REFUSED = {
    "resize_token_embeddings": "resize the embeddings before `planc.apply`",
    "add_adapter": "add adapters before `planc.apply`, and rules for them to the plan",
    "load_adapter": "load adapters before `planc.apply`, and rules for them to the plan",
}

Forward = Callable[..., Any]
Facts = dict[str, list[Any]]


def watch(model: nn.Module, program: Program, joined: Session) -> None:
    """Watch the first forwards of `model`, which `program` was applied to, and refuse what would change its shards.

    `PLANC_WATCHED_FORWARDS` says how many forwards (3). Each compares shapes and sums of the model's tensor arguments,
    and in training with dropout the state of the random number generator, over the tensor-parallel group by the
    launcher's store; later ones cost nothing. A difference stops all ranks with one message.
    """
    for module in model.modules():
        for name, advice in _REFUSED.items():
            if callable(getattr(module, name, None)):
                setattr(module, name, _refusal(module, name, advice))
    count = _count()
    if count:
        _Watch(model, program, joined, count).install()


def _count() -> int:
    text = os.environ.get(VARIABLE, str(WATCHED))
    if not text.isdecimal():
        raise RunError(f"{VARIABLE} is a number of forwards, 0 for none, not `{text}`")
    return int(text)


def _refusal(module: nn.Module, name: str, advice: str) -> Forward:
    original: Forward = getattr(module, name)

    @functools.wraps(original)
    def refused(*args: Any, **kwargs: Any) -> Any:
        if name == "resize_token_embeddings" and not any(a is not None for a in (*args[:1], *kwargs.values())):
            return original()  # which only returns them
        raise RunError(f"the model is sharded, and `{name}` would change its parameters: {advice}")

    return refused


@dataclass
class _Watch:
    """The watched forwards of one model. `owners` are the modules that held each parameter when it was applied."""

    model: nn.Module
    program: Program
    joined: Session
    left: int
    owners: Mapping[str, "weakref.ref[nn.Module]"] = field(init=False)
    number: int = 0
    # Tells the forwards of several models apart in the store; ranks apply them in one order.
    which: int = field(default_factory=itertools.count().__next__)

    def install(self) -> None:
        """Put the watch around the model's forward; after the last watched one it is gone."""
        self.owners = {name: weakref.ref(owner) for name, owner in _owners(self.model)}
        original: Forward = self.model.forward
        names = positional_names(original)

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            # Something else may have wrapped this forward meanwhile, and calls it forever.
            if self.left > 0 and not torch.compiler.is_compiling():
                self.left -= 1
                if self.left <= 0 and self.model.__dict__.get("forward") is forward:
                    self.model.forward = original
                self._look({**dict(zip(names, args, strict=False)), **kwargs})
            return original(*args, **kwargs)

        self.model.forward = forward

    def _look(self, arguments: Mapping[str, Any]) -> None:
        self.number += 1
        self._late_parameters()
        layout = self.program.layout
        # A pipeline hands its stages parts of batches at its own times.
        if layout.tp_size > 1 and layout.pp_size == 1:
            self._compare(self._facts(arguments))

    def _late_parameters(self) -> None:
        late = [
            name for name, owner in _owners(self.model) if name not in self.owners or self.owners[name]() is not owner
        ]
        if late:
            shown = ", ".join(f"`{name}`" for name in late[:3])
            more = f" and {len(late) - 3} more" if len(late) > 3 else ""
            message = (
                f"{shown}{more} came after the model was sharded, and no rank knows how to shard or sum them: "
                "add or replace modules (adapters, heads) before `planc.apply`, and rules for them to the plan"
            )
            raise self.joined.fail(stop(self.joined.store, message))

    def _facts(self, arguments: Mapping[str, Any]) -> Facts:
        facts: Facts = {}
        for name, value in arguments.items():
            if isinstance(value, Tensor) and not value.is_meta:
                facts[f"`{name}`"] = [list(value.shape), str(value.dtype), *_sums(value)]
        if self.model.training and any(isinstance(m, nn.Dropout) and m.p > 0 for m in self.model.modules()):
            facts["the random numbers"] = [_random_state(self.joined.device)]
        return facts

    def _compare(self, own: Facts) -> None:
        mesh = self.joined.meshes(self.program.layout).of("tp")
        ranks = [int(rank) for rank in mesh.mesh.flatten()]
        store, first = self.joined.store, ranks[0]
        prefix = f"planc/forward/{self.which}/{self.number}"
        store.set(f"{prefix}/{self.joined.place.rank}", json.dumps(own))
        others = self._read(store, prefix, ranks)
        for rank, facts in others.items():
            if (message := _difference(first, others.get(first, own), rank, facts)) is not None:
                raise self.joined.fail(stop(store, message))

    def _read(self, store: Store, prefix: str, ranks: list[int]) -> dict[int, Facts]:
        """What the ranks of the group were given; without those that don't come. Raises `Stopped`."""
        deadline = monotonic() + PATIENCE_SECONDS
        found: dict[int, Facts] = {}
        while len(found) < len(ranks) and monotonic() < deadline:
            for rank in ranks:
                if rank not in found and store.check([f"{prefix}/{rank}"]):
                    found[rank] = json.loads(store.get(f"{prefix}/{rank}"))
            if len(found) < len(ranks):
                try:
                    raise_if_stopped(store)
                except Stopped as stopped:
                    raise self.joined.fail(stopped) from None
                sleep(LOOK_SECONDS / 10)
        return found


def _owners(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every parameter's name, free of wrappers, with the module that holds it."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                full = f"{prefix}.{name}" if prefix else name
                for wrapper in _WRAPPERS:
                    full = full.replace(wrapper, "")
                yield full, module


def _sums(value: Tensor) -> list[Any]:
    """Numbers by which two tensors of a shape are told apart: of integers exact ones, else sums with their sizes."""
    flat = value.detach().flatten()
    if flat.is_floating_point():
        finite = torch.nan_to_num(flat.to(torch.float64 if flat.device.type == "cpu" else torch.float32))
        weights = torch.linspace(1, 2, len(finite), dtype=finite.dtype, device=finite.device)
        return ["float", float((finite * weights).sum()), float((finite.abs() * weights).sum())]
    if flat.is_complex():
        return ["other"]
    whole = flat.to(torch.int64)
    weights = torch.arange(1, len(whole) + 1, dtype=torch.int64, device=whole.device)
    return ["int", int((whole * weights).sum())]


def _random_state(device: torch.device) -> str:
    """The state of the generator that dropout on `device` draws from, hashed."""
    state = torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state()
    return hashlib.sha256(bytes(state.cpu().numpy())).hexdigest()[:16]


def _difference(first: int, left: Facts, rank: int, right: Facts) -> str | None:
    """What differs between two ranks of a tensor-parallel group, as one message; None where nothing does."""
    for name in left.keys() | right.keys():
        if _is_equal(left.get(name), right.get(name)):
            continue
        if name == "the random numbers":
            return (
                f"the model trains with dropout, and ranks {first} and {rank} of one tensor-parallel group would draw "
                "different masks: seed all ranks of a group alike, such as `torch.manual_seed(seed + dp_rank)`"
            )
        shapes = [facts[name][0] if name in facts else "nothing" for facts in (left, right)]
        how = f"of shapes {shapes[0]} and {shapes[1]}" if shapes[0] != shapes[1] else f"both of shape {shapes[0]}"
        return (
            f"ranks {first} and {rank} of one tensor-parallel group were given a different {name}, {how}: all ranks of "
            "a group compute parts of one result, and need the same batch; deal batches out over data-parallel ranks "
            "alone, such as by `DistributedSampler(num_replicas=fsdp_size * dp_replicate_size, rank=dp_rank)`"
        )
    return None


def _is_equal(left: list[Any] | None, right: list[Any] | None) -> bool:
    if left is None or right is None or left[:3] != right[:3]:
        return left == right
    if left[2:3] == ["float"]:
        size = max(abs(left[4]), abs(right[4]))
        return all(abs(a - b) <= TOLERANCE * size for a, b in zip(left[3:], right[3:], strict=True))
    return left == right
