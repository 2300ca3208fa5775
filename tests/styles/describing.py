"""Manifest modules of real torch modules, as far as styles look at them."""

import torch
from torch import nn

from planc.model.manifest import Experts, Manifest, ManifestFile, Module, ModuleEntry, ParameterEntry


class Router(nn.Module):
    """A router as transformers 5.24.0 writes them: a bare weight, no `in_features`."""

    def __init__(self) -> None:
        super().__init__()
        self.num_experts = 4
        self.weight = nn.Parameter(torch.zeros(4, 6))

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(nn.functional.linear(hidden_states, self.weight).softmax(-1).topk(2))


class StackedExperts(nn.Module):
    """Experts as transformers 5.24.0 holds them: one tensor a projection."""

    def __init__(self, count: int = 4, named: bool = True) -> None:
        super().__init__()
        if named:
            self.num_experts = count
        self.gate_up_proj = nn.Parameter(torch.zeros(count, 10, 6))
        self.down_proj = nn.Parameter(torch.zeros(count, 6, 5))
        self.down_proj_bias = nn.Parameter(torch.zeros(count, 6))

    def forward(self, hidden_states: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return hidden_states


class Scaled(nn.Module):
    """A module with a scalar parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.scale


MODULES: dict[str, nn.Module] = {
    "linear": nn.Linear(6, 10, bias=False),
    "linear with bias": nn.Linear(6, 10),
    "uneven linear": nn.Linear(7, 11),
    "embedding": nn.Embedding(11, 6),
    "layer norm": nn.LayerNorm(6),
    "router": Router(),
    "experts": StackedExperts(),
    "five experts": StackedExperts(5),
    "five experts without a count": StackedExperts(5, named=False),
    "scalar": Scaled(),
    "activation": nn.SiLU(),
    "convolution": nn.Conv1d(4, 4, 3),
}


def described(module: nn.Module, name: str = "it") -> Module:
    """`module` as a manifest has it."""
    entry = ModuleEntry(
        name=name,
        class_name=type(module).__name__,
        sizes={n: v for n, v in vars(module).items() if isinstance(v, int) and not n.startswith("_")},
        parameters=tuple(
            ParameterEntry(name=n, shape=tuple(p.shape), dtype="float32")
            for n, p in module.named_parameters(recurse=False)
        ),
        experts=Experts(num_experts=module.num_experts)
        if isinstance(module, StackedExperts) and _counts(module)
        else None,
        children=tuple(n for n, _ in module.named_children()),
    )
    return Module(name, entry)


def manifest_of(module: Module, **config: int) -> Manifest:
    """A model that holds nothing but `module`."""
    entries = (ModuleEntry(name="", class_name="Model"), module.entry)
    return Manifest(ManifestFile(name="model", class_name="Model", modules=entries, config=config))


def _counts(module: nn.Module) -> bool:
    return hasattr(module, "num_experts")
