"""Embeddings: every rank holds a slice of the vocabulary, or a slice of every vector."""

from collections.abc import Iterator
from typing import ClassVar

from planc.ir.operations import LookupShard, Operation, RunDistributed, RunLocal, TransformOutput
from planc.layouts.placement import Partial, Placement, Replicate, Shard
from planc.model.manifest import Module, ParameterEntry
from planc.styles.colwise import ColwiseGatherOutput
from planc.styles.rowwise import RowwiseSplitInput
from planc.styles.style import Lowering, Style, scalar_objection
from planc.styles.types import StyleType

R, P, LAST = Replicate(), Partial(), Shard(-1)
_DISTRIBUTED = StyleType(input=R, computes=R, output=R, input_gradient=R, distributed=True)


class _Embedding(Style):
    """Source: `EmbeddingParallel`, transformers 5.24.0.

    It runs the module under DTensor's rules with a replicated input and gathers or sums the output, so that it keeps
    the meaning of any module that DTensor can run, not of embeddings alone. An embedding and a Linear lower to local
    arithmetic; other modules to `RunDistributed`.
    """

    plans = frozenset({"tp", "ep"})
    dim: ClassVar[int]
    # The style that does the same to a Linear.
    linear: ClassVar[type[Style]]

    def parameter_objection(self, module: Module, parameter: ParameterEntry) -> str | None:
        if len(parameter.shape) > self.dim:
            return None
        return scalar_objection(self, parameter) or (
            f"`{parameter.name}` has no dim {self.dim}, which `{self.name}` shards: its shape is {parameter.shape}"
        )

    def placement(self, parameter: ParameterEntry) -> Placement:
        return Shard(self.dim)

    def type(self, module: Module) -> StyleType:
        if self._looks_up(module):
            rows = self.dim == 0
            return StyleType(input=R, computes=R, yields=P if rows else LAST, output=R, runs_local=True, lookup=rows)
        if is_linear(module):
            return self.linear().type(module)
        return _DISTRIBUTED

    def on_tied(self, placement: Placement | None, alone: bool) -> Style:
        """Under DTensor's rules the result is right for every placement of the owner's."""
        return self if placement in (None, Shard(self.dim)) else _OnTied(self)

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        if self._looks_up(module):
            yield from self.lower_embedding(module, to)
        elif is_linear(module):
            yield from self.linear().lower_module(module, to)
        else:
            yield RunDistributed(module.name, to.axis, source=R, target=R)

    def _looks_up(self, module: Module) -> bool:
        """Whether local arithmetic will do: not for slices of vectors that modules inside (a norm) take whole.

        Summands they can't take either, under DTensor's rules no more than here.
        """
        return is_embedding(module) and (self.dim == 0 or not module.has_children)

    def lower_embedding(self, module: Module, to: Lowering) -> Iterator[Operation]:
        """Operations on a module that looks up rows of its weight."""
        raise NotImplementedError


class _OnTied(_Embedding):
    """An embedding's style on a module whose weight another module's rule places: run by DTensor's rules."""

    def __init__(self, style: _Embedding) -> None:
        super().__init__()
        self.name = style.name  # type: ignore[misc]  # messages speak of the user's style
        self.dim = style.dim  # type: ignore[misc]

    def type(self, module: Module) -> StyleType:
        return _DISTRIBUTED

    def lower_module(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield RunDistributed(module.name, to.axis, source=R, target=R)


class EmbeddingRowwise(_Embedding):
    """Vocabulary sharded: ids of other ranks' rows look up zero, and the look-ups are summed."""

    name = "embedding_rowwise"
    dim = 0
    linear = ColwiseGatherOutput

    def lower_embedding(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield RunLocal(module.name)
        yield LookupShard(module.name, to.axis, module.entry.sizes["num_embeddings"])
        yield TransformOutput(module.name, to.axis, source=P, target=R, gradient=R)


class EmbeddingColwise(_Embedding):
    """Vectors sharded: every rank looks up a slice of each, and the slices are gathered."""

    name = "embedding_colwise"
    dim = 1
    linear = RowwiseSplitInput

    def lower_embedding(self, module: Module, to: Lowering) -> Iterator[Operation]:
        yield RunLocal(module.name)
        size = module.entry.sizes["embedding_dim"]
        yield TransformOutput(module.name, to.axis, source=LAST, target=R, gradient=R, size=size)


def is_embedding(module: Module) -> bool:
    """Whether the module looks up rows of its weight, as `torch.nn.Embedding` does."""
    return {"num_embeddings", "embedding_dim"} <= module.entry.sizes.keys()


def is_linear(module: Module) -> bool:
    """Whether the module multiplies by its weight, as `torch.nn.Linear` does."""
    return {"in_features", "out_features"} <= module.entry.sizes.keys()
