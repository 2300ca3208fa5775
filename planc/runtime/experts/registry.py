"""The implementations by name: planc's own, those of installed packages, and those that transformers knows."""

from collections.abc import Callable
from importlib.metadata import entry_points

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from planc.runtime.errors import ProgramError
from planc.runtime.experts.all_reduce import AllReduce
from planc.runtime.experts.all_to_all import AllToAll
from planc.runtime.experts.auto import Auto
from planc.runtime.experts.megamoe import NAME, megamoe

Implementation = Callable[[nn.Module, DeviceMesh, DeviceMesh], Callable[[Tensor, Tensor, Tensor], Tensor]]
GROUP = "planc.ep_implementations"
IMPLEMENTATIONS: dict[str, Implementation] = {
    "auto": Auto,
    "all_to_all": AllToAll,
    "all_reduce": AllReduce,
    NAME: megamoe,
}


def register(name: str, implementation: Implementation) -> None:
    """Make `implementation` available as `ep_implementation: name`. Raises `ValueError` when the name is taken."""
    if IMPLEMENTATIONS.get(name, implementation) is not implementation:
        raise ValueError(f"an expert implementation called {name!r} is registered already")
    IMPLEMENTATIONS[name] = implementation


def implementation(name: str) -> Implementation:
    """The implementation called `name`.

    Looks into planc's registry, the entry points of the group `planc.ep_implementations`, and the classes registered
    with transformers' `EPImplementationInterface`. Raises `ProgramError` naming those that exist.
    """
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
    installed = entry_points(group=GROUP)
    if name in installed.names:
        found: Implementation = installed[name].load()
        return found
    from transformers.distributed.expert_parallel import EPImplementationInterface

    theirs = EPImplementationInterface()
    if name in theirs:
        known: Implementation = theirs[name]
        return known
    names = sorted({*IMPLEMENTATIONS, *installed.names, *theirs})
    raise ProgramError(f"there is no expert implementation `{name}`; registered ones are {', '.join(names)}")
