"""What planc says of messages and bytes (`explain KEY`, PL219) is what ranks send, in both runtimes."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.distributed.expert_parallel import AllReduceEP, AllToAllEP

from planc.check.dispatch import Routing, costs
from planc.check.rule import CheckContext
from planc.check.traffic import gathered_bytes, sums_and_gathers
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.program import Program
from planc.resolve.resolver import resolve
from planc.runtime.experts.all_reduce import AllReduce
from planc.runtime.experts.all_to_all import AllToAll
from planc.runtime.mesh import Meshes, build_meshes
from planc.syntax.arguments import plan_from_mapping
from tests.proof.cases import AXES, Case, Programs, layout
from tests.proof.models import batches, build
from tests.proof.on_ranks import applied
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks
TOKENS, EXPERTS, FEATURES = 8, 8, 16
# One expert of each of four ranks: all ranks get as much.
ROUTES = (0, 2, 4, 6)
ROUTING = Routing(EXPERTS, len(ROUTES), FEATURES, 4)
IMPLEMENTATIONS: dict[str, tuple[type[Any], ...]] = {
    "all_to_all": (AllToAll, AllToAllEP),
    "all_reduce": (AllReduce, AllReduceEP),
}


class Counted(TorchDispatchMode):
    """Counts collectives by kind, and the bytes that this rank sends to others, by a ring where all get the same."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: Counter[str] = Counter()
        self.bytes = Fraction()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name.startswith(("c10d.", "_c10d_functional.")):
            self._count(name.split(".")[1], args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: Any) -> None:
        if "alltoall" in name or "all_to_all" in name:
            functional = name == "all_to_all_single"
            tensor, splits = (args[0], args[2]) if functional else (args[1], args[4])
            self._sent("all-to-all", tensor, _away(tensor, splits) if tensor.is_floating_point() else Fraction())
        elif "allreduce" in name or "all_reduce" in name:
            tensor = args[0][0] if isinstance(args[0], list) else args[0]
            self._sent("all-reduce", tensor, 2 * Fraction(_group(args) - 1, _group(args)))
        elif "allgather" in name or "all_gather" in name:
            tensor = args[0] if name == "all_gather_into_tensor" else args[1]
            self._sent("all-gather", tensor, Fraction(_group(args) - 1))
        elif "wait" not in name and "wrap" not in name:
            raise AssertionError(f"a message of another kind: {name}")

    def _sent(self, kind: str, tensor: Tensor, share: Fraction) -> None:
        self.messages[kind] += 1
        self.bytes += tensor.nbytes * share


def _away(tensor: Tensor, splits: list[int]) -> Fraction:
    own = splits[dist.get_rank()] if splits else 0
    return Fraction(tensor.shape[0] - own, tensor.shape[0])


def _group(args: Any) -> int:
    """The group's size: a number, a name or a group among the arguments; these tests have none but the default one."""
    sizes = [a for a in args[1:] if isinstance(a, int) and not isinstance(a, bool) and a > 1]
    return sizes[0] if sizes else SIZE[0]


SIZE = [0]


class Experts(nn.Module):
    """As many rows as transformers' grouped experts run, counted."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.num_experts, self.rows = count, 0
        self.config = SimpleNamespace(_experts_implementation="grouped_mm")

    def forward(self, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        self.rows += ids.numel()
        return (hidden.unsqueeze(1) * weights.unsqueeze(-1)).sum(dim=1)


@dataclass(frozen=True)
class Measured:
    """Messages, bytes and experts' rows of one forward pass over all tokens."""

    messages: dict[str, int]
    sent: Fraction
    rows: int


def dispatched(layouts: tuple[str, ...]) -> dict[tuple[str, str, int], Measured]:
    """By layout, implementation, and whose it is (planc's first)."""
    found = {}
    for sizes in layouts:
        meshes = build_meshes(layout(sizes), "cpu")
        for name in costs(layout(sizes), ROUTING):
            for number, cls in enumerate(IMPLEMENTATIONS.get(name, ())):
                found[sizes, name, number] = measured(cls, meshes)
    return found


def measured(cls: type[Any], meshes: Meshes) -> Measured:
    tp, ep = meshes.of("tp"), meshes.of("ep")
    SIZE[0] = tp.size()  # all-gathers are over tp; all-reduces need both to be one group
    experts = Experts(EXPERTS // ep.size())
    run = cls(experts, ep, tp)
    hidden = torch.ones(TOKENS, FEATURES)
    index = torch.tensor(ROUTES).expand(TOKENS, -1).contiguous()
    with Counted() as counted:
        run(hidden, index, torch.ones(TOKENS, len(ROUTES)))
    return Measured(dict(counted.messages), counted.bytes, experts.rows)


def test_costs_of_dispatch() -> None:
    layouts = ("tp4·ep4", "tp2·fsdp2·ep4", "fsdp4·ep4")
    for found in run_ranks(4, dispatched, layouts):
        assert len(found) == 2 * 2 + 2 + 2
        for (sizes, name, _), run in found.items():
            cost = costs(layout(sizes), ROUTING)[name]
            said = {kind: int(cost.messages.partition(f" {kind}")[0].split()[-1]) for kind in run.messages}
            assert said == run.messages, cost.messages
            assert run.sent == cost.sent * TOKENS and run.rows == cost.rows * TOKENS, (sizes, name)


def messages_of_steps(cases: list[tuple[Case, Program]]) -> list[list[tuple[int, int]]]:
    """Messages of a forward and of its backward, in planc's runtime and in transformers', for each case."""
    ids, meshes = batches(1)[0], build_meshes(cases[0][0].layout, "cpu")
    SIZE[0] = meshes.size("tp")
    return [[_of_a_step(model, ids) for model in applied(case, program, meshes)] for case, program in cases]


def _of_a_step(model: Any, ids: Tensor) -> tuple[int, int]:
    with Counted() as forward:
        output = model(input_ids=ids, labels=ids, use_cache=False)
    with Counted() as backward:
        output.loss.backward()
    return forward.messages.total(), backward.messages.total()


def context(case: Case) -> CheckContext:
    manifest = Manifest(build_manifest(build(case.model), case.model))
    plan, found = plan_from_mapping({f"{axis}_size": case.layout.size(axis) for axis in AXES})
    assert plan is not None and not found
    return CheckContext(plan, manifest, case.layout, resolve(plan, manifest, case.layout))


def test_messages_of_tensor_parallelism() -> None:
    names, programs = ("llama", "qwen3", "mixtral", "deepseek_v3"), Programs()
    cases = [Case(name, layout("tp2")) for name in names]
    said = [[sums_and_gathers(context(case), "tp")] * 2 for case in cases]
    assert all(min(messages) > 4 for (messages, _) in said)
    for found in run_ranks(2, messages_of_steps, [(case, programs.of(case)) for case in cases]):
        assert found == said


def gathered(case: Case, program: Program) -> list[Fraction]:
    """Bytes that FSDP gathers onto this rank in a forward pass, in planc's runtime and in transformers'."""
    SIZE[0] = case.layout.fsdp_size
    found = []
    for model in applied(case, program, build_meshes(case.layout, "cpu")):
        with Counted() as counted:
            model(input_ids=batches(1)[0], use_cache=False)
        assert counted.messages.keys() == {"all-gather"}
        found.append(counted.bytes)
    return found


def test_bytes_that_fsdp_gathers() -> None:
    case = Case("llama", layout("fsdp4"))
    said = gathered_bytes(context(case), "fsdp")
    assert said > 10_000
    assert run_ranks(4, gathered, case, Programs().of(case)) == [[said, said]] * 4
