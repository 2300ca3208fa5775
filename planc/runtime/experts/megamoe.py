"""DeepGEMM's fused kernel: handed on to transformers where hardware and package exist, refused elsewhere."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.runtime.errors import ApplicationError

NAME = "deepgemm_megamoe"


def runs_megamoe(experts: nn.Module) -> bool:
    """Whether the model was loaded with `experts_implementation="deepgemm_megamoe"`: only the kernel runs those."""
    return getattr(getattr(experts, "config", None), "_experts_implementation", None) == NAME


def megamoe(experts: nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> Callable[..., Tensor]:
    """transformers' `MegaMoeEP` for `experts`. Raises `ApplicationError` naming everything that is missing."""
    missing = list(_missing(experts))
    if missing:
        raise ApplicationError(f"`ep_implementation: {NAME}` can't run here: {'; '.join(missing)}")
    from transformers.distributed.expert_parallel import MegaMoeEP

    implementation: Any = MegaMoeEP(experts, ep_mesh, tp_mesh)
    return implementation  # type: ignore[no-any-return]


def _missing(experts: nn.Module) -> list[str]:
    reasons = []
    if not (torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 10):
        reasons.append("it needs GPUs of compute capability 10.0 (SM100)")
    if find_spec("deep_gemm") is None and find_spec("kernels") is None:
        reasons.append("the package `deep_gemm` isn't installed")
    if not runs_megamoe(experts):
        reasons.append(f'the model must be loaded with `experts_implementation="{NAME}"` and FP4 experts')
    return reasons
