"""Parameters become DTensors."""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_tensor

from planc.ir.operations import ShardParameter
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles
from planc.runtime.placements import to_torch


@handles(ShardParameter)
def shard_parameter(operation: ShardParameter, application: Application) -> None:
    """Shard a parameter, under every name that it has in the model."""
    module, name = application.owner(operation.parameter)
    parameter = module._parameters[name]
    assert parameter is not None  # `owner` looked
    mesh = application.meshes.of(operation.axis)
    placement = to_torch(operation.placement, parameter.ndim)
    if isinstance(parameter, DTensor):
        if parameter.device_mesh != mesh or parameter.placements != (placement,):
            raise ApplicationError(
                f"the program shards `{operation.parameter}` as {operation.placement} on {operation.axis}, but as "
                f"{parameter.placements} under another of its names"
            )
        return
    sharded = nn.Parameter(distribute(parameter, mesh, placement), requires_grad=parameter.requires_grad)
    application.holders.replace(parameter, sharded)


def distribute(parameter: Tensor, mesh: DeviceMesh, placement: Placement) -> DTensor:
    """This rank's shard of a tensor that every rank holds whole (or on the meta device). Nothing is sent."""
    result = distribute_tensor(parameter, mesh, [placement], src_data_rank=None)
    local: Tensor = result._local_tensor
    if local.is_meta or local.untyped_storage().nbytes() <= local.numel() * local.element_size():
        return result
    # A shard that is a view would keep the whole tensor in memory.
    return DTensor.from_local(
        local.detach().clone(),
        mesh,
        result.placements,
        run_check=False,
        shape=result.shape,
        stride=result.stride(),
    )
