"""The implementations by name: planc's own, those of installed packages, and those that transformers knows."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.runtime.errors import ApplicationError
from planc.runtime.experts.all_reduce import AllReduce
from planc.runtime.experts.all_to_all import AllToAll
from planc.runtime.experts.auto import Auto
from planc.runtime.experts.megamoe import NAME, megamoe
from planc.styles import registry

Implementation = Callable[[nn.Module, DeviceMesh, DeviceMesh], Callable[[Tensor, Tensor, Tensor], Tensor]]
IMPLEMENTATIONS: dict[str, Implementation] = {
    "auto": Auto,
    "all_to_all": AllToAll,
    "all_reduce": AllReduce,
    NAME: megamoe,
}


def register(name: str, implementation: type[Any]) -> None:
    """Make `implementation` available as `ep_implementation: name`, to checks as well.

    Raises `ValueError` when the name is one of planc's own.
    """
    registry.register_ep_implementation(name, implementation)


def implementation(name: str) -> Implementation:
    """The implementation called `name`.

    One that somebody registered, with transformers' `EPImplementationInterface` too, goes before planc's own; then come
    those of installed packages. Raises `ApplicationError` naming those that exist, or saying why one can't be loaded.
    """
    if name in IMPLEMENTATIONS and not registry.is_custom_ep_implementation(name):
        return IMPLEMENTATIONS[name]
    if registry.is_custom_ep_implementation(name):
        try:
            found: Implementation = registry.ep_implementation_class(name)
        except Exception as error:  # a package's own code
            raise ApplicationError(f"the expert implementation `{name}` can't be loaded: {error}") from error
        return found
    names = sorted(registry.ep_implementation_names())
    raise ApplicationError(f"there is no expert implementation `{name}`; registered ones are {', '.join(names)}")
