"""Run a model wholly in double precision, also where its code asks for single."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from planc.verify.grouped_mm import grouped_mm

_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_FLOAT = torch.Tensor.float
_GROUPED_MM = (torch.nn.functional.grouped_mm, torch._grouped_mm)


class Exact(TorchFunctionMode):
    """Answers every request for `float32` with `float64`, for the calling thread.

    Norms, routers and rotary embeddings of transformers' models compute in `float32` whatever the model's precision
    (`hidden_states.to(torch.float32)`), which would bring single precision's rounding into a copy in `float64`, and
    with it a tolerance a million times wider.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is _FLOAT:
            return args[0].double()
        if func in _GROUPED_MM and args[0].dtype is torch.float64:
            return grouped_mm(*args, offs=(kwargs or {})["offs"])
        wider = tuple(_WIDER.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args)
        if not kwargs:
            return func(*wider)
        return func(*wider, **{k: _WIDER.get(v, v) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()})
