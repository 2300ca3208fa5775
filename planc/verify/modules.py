"""What every module of a copy returns, to find where a sharded one first departs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from planc.verify.reference import largest

_LEAST_ERROR = 1e-7
"""Relative to the largest element. Roundoff in double precision stays far below; a wrong plan is far above."""


@dataclass(frozen=True, slots=True)
class FirstDeparture:
    """The first module, in order of completion, whose output is whole on a rank and isn't that of the whole copy."""

    module: str
    rank: int
    relative: float


class Trace:
    """Outputs of a model's modules, by name, in the order in which their forwards end; the first call of each."""

    def __init__(self) -> None:
        self.outputs: dict[str, Tensor] = {}
        self.running: list[str] = []

    def attach(self, model: nn.Module) -> None:
        """Watch `model`; what is installed on its forwards later is inside what is watched."""
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
            module.register_forward_hook(self._leave(name), with_kwargs=True)

    def _enter(self, name: str):  # type: ignore[no-untyped-def]
        def hook(module: nn.Module, args: object, kwargs: object) -> None:
            self.running.append(name)

        return hook

    def _leave(self, name: str):  # type: ignore[no-untyped-def]
        def hook(module: nn.Module, args: object, kwargs: object, output: object) -> None:
            self.running.pop()
            first = next((x for x in pytree.tree_leaves(output) if isinstance(x, Tensor)), None)
            if first is not None and first.is_floating_point() and name not in self.outputs:
                local = first.to_local() if isinstance(first, DTensor) else first
                self.outputs[name] = local.detach().clone()

        return hook


def first_departure(whole: Mapping[str, Tensor], ranks: Sequence[Mapping[str, Tensor]]) -> FirstDeparture | None:
    """The first module of `whole` from whose output that of a rank departs; sharded outputs aren't judged."""
    for name, expected in whole.items():
        for rank, found in enumerate(ranks):
            output = found.get(name)
            if output is None or output.shape != expected.shape:
                continue
            error, scale = largest(output - expected), largest(expected)
            if not error <= _LEAST_ERROR * max(scale, torch.finfo(torch.float64).tiny):
                return FirstDeparture(name, rank, error / scale if scale else float("inf"))
    return None
