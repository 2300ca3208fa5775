"""What a plan does to the modules and parameters of a flow, on one axis."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from planc.flow.pieces import chunk, strided
from planc.flow.problems import CantFollowError
from planc.flow.types import WHOLE, Origin, PartialSum, Sharded, Type
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.model.manifest import Manifest, Module
from planc.styles.style import Style
from planc.styles.types import StyleType

_NOTHING = StyleType()


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of an axis of `size` that are looked at: enough to see every local size, whatever `size` is."""

    size: int
    looked_at: tuple[int, ...]

    def place(self, placement: Placement, shape: tuple[int, ...], origin: Origin | None) -> Type:
        """The type of a value of this global shape under a placement. Raises CantFollowError for a cut scalar."""
        if not shape and isinstance(placement, Shard | StridedShard):
            raise CantFollowError("a part of a value without dims")
        match placement:
            case Replicate():
                return WHOLE
            case Partial():
                return PartialSum(origin)
            case StridedShard(dim, parts):
                dim %= len(shape)
                return Sharded(dim, tuple(strided(shape[dim], self.size, r, parts) for r in self.looked_at), origin)
            case Shard(dim):
                dim %= len(shape)
                return Sharded(dim, tuple(chunk(shape[dim], self.size, r) for r in self.looked_at), origin)


def ranks_for(size: int, widths: Iterable[int]) -> Ranks:
    """The first and last ranks, and those where a dim of one of `widths` ends short."""
    found = {0, 1, size - 1}
    for width in widths:
        step = -(-width // size)
        if step and width % size:
            found |= {width // step, width // step + 1}
    return Ranks(size, tuple(sorted(rank for rank in found if rank < size)))


class PlacedModel:
    """A model under a plan, as a flow of it sees it.

    `styles` are by the concrete name of a module or parameter; `renamed` maps a layer that was recorded to the one that
    is judged in its place. Modules of `opaque` are handled by another axis and keep whole values whole; what comes out
    of those of `foreign` is unknown.
    """

    def __init__(
        self,
        manifest: Manifest,
        styles: Mapping[str, Style],
        ranks: Ranks,
        renamed: Mapping[str, str] | None = None,
        opaque: frozenset[str] = frozenset(),
        foreign: frozenset[str] = frozenset(),
    ) -> None:
        self.manifest, self.styles, self.ranks = manifest, styles, ranks
        self.opaque, self.foreign = opaque, foreign
        self._renamed = dict(renamed or {})
        self._shared = dict(manifest.file.ties)
        self._types: dict[str, StyleType] = {}

    def name(self, recorded: str) -> str:
        """The concrete name that stands for a recorded one."""
        prefix = recorded
        while prefix:
            if prefix in self._renamed:
                return self._renamed[prefix] + recorded[len(prefix) :]
            prefix = prefix.rpartition(".")[0]
        return recorded

    def module(self, recorded: str) -> Module | None:
        """The module that stands for a recorded one."""
        return self.manifest.modules.get(self.name(recorded))

    def holds_weights_inside(self, recorded: str) -> bool:
        """Whether modules inside a recorded one have parameters."""
        name = self.name(recorded)
        module = self.manifest.modules.get(name)
        if module is None or not module.has_children:
            return False
        return any(p.startswith(f"{name}.") and p not in module.parameters for p in self.manifest.parameters)

    def style(self, recorded: str) -> Style | None:
        """The style of a recorded module or parameter."""
        return self.styles.get(self.name(recorded))

    def type(self, recorded: str) -> StyleType:
        """What the style of a recorded module does."""
        if recorded not in self._types:
            style, module = self.style(recorded), self.module(recorded)
            self._types[recorded] = _NOTHING if style is None or module is None else style.type(module)
        return self._types[recorded]

    def tied_with(self, parameter: str) -> Iterator[str]:
        """The other names of a recorded parameter's tensor."""
        name = self.name(parameter)
        owner = self._shared.get(name, name)
        names = (owner, *(tied for tied, other in self._shared.items() if other == owner))
        yield from (other for other in names if other != name)

    def placement(self, parameter: str) -> tuple[Placement | None, Origin | None]:
        """The placement of a recorded parameter, None where it is a plain tensor, and the rule that gave it.

        A tied parameter is the one it shares, whatever its own rule says.
        """
        name = self.name(parameter)
        name = self._shared.get(name, name)
        style = self.styles.get(name)
        if style is None or name not in self.manifest.parameters:
            return None, None
        return style.placement(self.manifest.parameters[name][1]), Origin(name, style.name)
