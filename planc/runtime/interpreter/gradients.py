"""Parameters whose gradient is a summand on each rank."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.ir.operations import SumGradient
from planc.runtime.collectives import all_reduce
from planc.runtime.interpreter.application import Application, handles
from planc.runtime.interpreter.forward import grad_is_wanted

# Set on a parameter object whose gradient is summed already.
MARK = "_planc_gradient_is_summed"


@handles(SumGradient)
def sum_gradient(operation: SumGradient, application: Application) -> None:
    """Sum a parameter's gradient over the axis before it is accumulated.

    A hook on the gradient that arrives, not on the accumulated one, so that a second backward pass adds its own sum
    (a hook after accumulation, as in transformers 5.24.0, sums the first pass's gradient again). Loading weights and
    FSDP2 put other objects in the parameter's place, so every forward of the model and of its module looks after it.
    """
    module, name = application.owner(operation.parameter)
    summed = _Sum(module, name, application.meshes.group(operation.axis))
    summed.attach()
    for around in {"", operation.parameter.rpartition(".")[0]}:
        application.around(around).before.append(summed.attach)


class _Sum:
    """Sees to it that whatever stands in a parameter's place has its gradient summed, once."""

    def __init__(self, module: nn.Module, name: str, group: dist.ProcessGroup) -> None:
        self.module, self.name, self.group = module, name, group

    def attach(self) -> None:
        parameter = self.module._parameters[self.name]
        if parameter is not None and grad_is_wanted(parameter) and not hasattr(parameter, MARK):
            parameter.register_hook(self._sum)  # type: ignore[no-untyped-call]
            setattr(parameter, MARK, True)

    def _sum(self, gradient: Tensor) -> Tensor:
        if isinstance(gradient, DTensor):
            local = sum_in_float32(gradient.to_local(), self.group)
            return DTensor.from_local(local, gradient.device_mesh, gradient.placements, run_check=False)
        return sum_in_float32(gradient, self.group)


def sum_in_float32(gradient: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum of a parameter's `gradient` over the ranks of `group`, in its own dtype, rounded once.

    A sum in bfloat16 rounds after every rank. FSDP2 reduces in float32 under `fsdp_mixed_precision`, and what is summed
    over another axis of the mesh must not lose that.
    """
    if torch.finfo(gradient.dtype).bits >= 32:
        return all_reduce(gradient, group)
    return all_reduce(gradient.float(), group).to(gradient.dtype)
