"""Parameters whose gradient is a summand on each rank."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.ir.operations import SumGradient
from planc.runtime.collectives import all_reduce
from planc.runtime.interpreter.application import Application, handles
from planc.runtime.interpreter.forward import grad_is_wanted


@handles(SumGradient)
def sum_gradient(operation: SumGradient, application: Application) -> None:
    """Sum a parameter's gradient over the axis before it is accumulated.

    A hook on the gradient that arrives, not on the accumulated one, so that a second backward pass adds its own sum
    (a hook after accumulation, as in transformers 5.24.0, sums the first pass's gradient again). Loading weights and
    FSDP2 put another object in the parameter's place, so the hook is looked after at every forward of its module.
    """
    module, name = application.owner(operation.parameter)
    hook = _Sum(module, name, application.meshes.group(operation.axis))
    hook.attach()
    application.around(operation.parameter.rpartition(".")[0]).before.append(hook.attach)
    application.on_replaced.append(hook.attach)


class _Sum:
    """Sees to it that whatever stands in a parameter's place has its gradient summed, once."""

    def __init__(self, module: nn.Module, name: str, group: dist.ProcessGroup) -> None:
        self.module, self.name, self.group = module, name, group
        self._last: Any = None

    def attach(self) -> None:
        parameter = self.module._parameters[self.name]
        if parameter is None or parameter is self._last or not grad_is_wanted(parameter):
            return
        parameter.register_hook(self._sum)  # type: ignore[no-untyped-call]
        self._last = parameter

    def _sum(self, gradient: Tensor) -> Tensor:
        if isinstance(gradient, DTensor):
            local = all_reduce(gradient.to_local(), self.group)
            return DTensor.from_local(local, gradient.device_mesh, gradient.placements, run_check=False)
        return all_reduce(gradient, self.group)
