"""What single modules say of themselves: heads of attention modules, experts. Nothing here knows a model's name."""

import inspect
from typing import Any

from torch import nn

from planc.model.manifest import Attention, Experts


def module_facts(module: nn.Module, parent: nn.Module | None) -> dict[str, Any]:
    """Those fields of `ModuleEntry` that `module` has a fact for."""
    facts = {"attention": _attention(module), "experts": _stacked_experts(module) or _listed_experts(module, parent)}
    return {name: fact for name, fact in facts.items() if fact is not None}


def _attention(module: nn.Module) -> Attention | None:
    """Head counts of a module that can call transformers' attention functions.

    Those read `num_key_value_groups` or `is_causal` off the module (`integrations/sdpa_attention.py`, transformers
    5.24.0); a state-space mixer has heads too, but neither of these.
    """
    if not hasattr(module, "num_key_value_groups") and not hasattr(module, "is_causal"):
        return None
    config = getattr(module, "config", None)
    head_dim = _first(module, "qk_head_dim", "head_dim", "attention_head_size")
    heads = _first(module, "num_heads", "num_attention_heads") or _first(config, "num_attention_heads")
    if heads is None or head_dim is None:
        return None
    groups = _first(module, "num_key_value_groups")
    key_value_heads = _first(module, "num_key_value_heads", "num_kv_heads")
    if key_value_heads is None:
        key_value_heads = heads // groups if groups else heads
    if heads % key_value_heads:
        return None
    return Attention(num_heads=heads, num_key_value_heads=key_value_heads, head_dim=head_dim)


def _stacked_experts(module: nn.Module) -> Experts | None:
    """A module whose weights are stacked: parameters of three or more dims, the first of them `num_experts`."""
    count = _first(module, "num_experts")
    if count is None:
        return None
    stacked = [p for p in module.parameters(recurse=False) if p.ndim >= 3]
    if not stacked or any(p.shape[0] != count for p in stacked):
        return None
    return Experts(num_experts=count, routed=_takes_routes(module))


def _listed_experts(module: nn.Module, parent: nn.Module | None) -> Experts | None:
    """A list with a module for each expert; that it is one shows in a count of experts that its parent carries."""
    if not isinstance(module, nn.ModuleList) or len(module) < 2 or len({type(m) for m in module}) != 1:
        return None
    counts = {value for name, value in vars(parent).items() if "experts" in name and isinstance(value, int)}
    return Experts(num_experts=len(module), routed=False) if len(module) in counts else None


def _takes_routes(module: nn.Module) -> bool:
    """Whether forward takes the three tensors of expert dispatch: hidden states, expert ids, weights."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional for p in parameters) == 3


def _first(holder: object, *names: str) -> int | None:
    """The first of these attributes that is a positive integer."""
    values = (getattr(holder, name, None) for name in names)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)
