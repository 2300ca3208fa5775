"""Models that change a projection's output in place, each through another view of it or a copy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def _add(view: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Adds one to what `view` makes of its argument."""

    def change(out: Tensor) -> Any:
        seen = view(out)
        seen += 1
        return seen

    return change


def _write(out: Tensor) -> Tensor:
    out[:, 0] = 0
    return out


def _write_through_a_view(out: Tensor) -> Tensor:
    out.view(-1, 8)[0] = 0
    return out


# How a projection's output of shape [2, 6, 8] is changed.
CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "itself": _add(lambda out: out),
    "multiplied": lambda out: out.mul_(2),
    "activated": lambda out: functional.relu(out, inplace=True),
    "filled": lambda out: out.masked_fill_(out > 0, 0.0),
    "written": _write,
    "written through a view": _write_through_a_view,
    "view": _add(lambda out: out.view(12, 8)),
    "reshape": _add(lambda out: out.reshape(2, 48)),
    "flatten": _add(lambda out: out.flatten(0, 1)),
    "unflatten": _add(lambda out: out.unflatten(-1, (2, 4))),
    "transpose": _add(lambda out: out.transpose(1, 2)),
    "permute": _add(lambda out: out.permute(2, 0, 1)),
    "a copy of a transpose": _add(lambda out: out.transpose(1, 2).contiguous()),
    "a reshape that copies": _add(lambda out: out.transpose(1, 2).reshape(2, 48)),
    "contiguous": _add(lambda out: out.contiguous()),
    "expand": lambda out: out.unsqueeze(0).expand(1, 2, 6, 8).add_(1),
    "slice": _add(lambda out: out[:, 1:]),
    "narrow": _add(lambda out: out.narrow(1, 1, 2)),
    "select": _add(lambda out: out.select(1, 0)),
    "squeeze": _add(lambda out: out.unsqueeze(1).squeeze(1)),
    "the same dtype": _add(lambda out: out.to(torch.float32)),
    "another dtype": _add(lambda out: out.to(torch.float64)),
    "no dropout": _add(lambda out: functional.dropout(out, 0.0, True)),
    "dropout": _add(lambda out: functional.dropout(out, 0.5, True)),
    "a clone": _add(lambda out: out.clone()),
    "a sum": _add(lambda out: out + 1),
    "detached": lambda out: (out.detach().add_(1), out)[1],
    "chosen": _add(lambda out: out[:, torch.tensor([0, 1], device=out.device)]),
    "with another": lambda out: torch.add(out, 1, out=None),
}


class Changing(nn.Module):
    """Token ids through a projection, whose output is changed in place."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = CHANGES[change]
        self.embed = nn.Embedding(16, 8)
        self.proj = nn.Linear(8, 8)

    def forward(self, input_ids: Tensor) -> Any:
        return self.change(self.proj(self.embed(input_ids)))


def __getattr__(name: str) -> Any:
    """The factory of a model by its change, as `package.module:factory` names it."""
    change = name.replace("_", " ")
    if change not in CHANGES:
        raise AttributeError(name)
    return partial(Changing, change)
