"""FSDP2's styles: whether a module frees its gathered weights after its forward."""

from typing import ClassVar

from planc.model.manifest import Module
from planc.styles.style import Style

# `fully_shard` of torch 2.13 refuses containers that have no forward.
_CONTAINERS = ("ModuleList", "ModuleDict")


class _Fsdp(Style):
    """Source: `ALL_FSDP_STYLES`, transformers 5.24.0, `distributed/fsdp.py`. Groups are formed in `planc.program`."""

    plans = frozenset({"fsdp"})
    reshard_after_forward: ClassVar[bool]

    def objection(self, module: Module) -> str | None:
        if module.entry.class_name not in _CONTAINERS:
            return None
        return f"FSDP2 hooks a module's forward, and a `{module.entry.class_name}` has none: wrap what it holds"


class FreeFullWeight(_Fsdp):
    """The gathered weights are freed after the forward and gathered again for the backward."""

    name = "free_full_weight"
    reshard_after_forward = True


class KeepFullWeight(_Fsdp):
    """The gathered weights stay from the forward to the backward."""

    name = "keep_full_weight"
    reshard_after_forward = False
