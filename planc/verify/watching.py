"""What a custom style does, by running it: on a small module, beside each of planc's own styles.

A registered object is code. What it does to a Linear or an embedding can be seen, though: the placements of its
parameters, what comes out of the module, and every gradient, on ranks of their own. Where all of that is what one of
planc's styles gives, its layout type is that style's.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from planc.flow.boundaries import Boundary
from planc.flow.plan import ranks_for
from planc.ir.operations import Operation
from planc.layouts.layout import Layout
from planc.layouts.placement import Replicate, Shard
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.placements import chunk
from planc.runtime.interpreter import apply_operations
from planc.runtime.interpreter.custom import shard
from planc.runtime.mesh import Meshes, build_meshes
from planc.styles.registry import STYLES
from planc.styles.style import Lowering, Style
from planc.styles.types import StyleType
from planc.verify.observing import gathered
from planc.verify.quiet import quiet
from planc.verify.ranks.threads import RankThreads

# One of both divides what is split, the other doesn't.
_RANKS = (2, 3)
_IN, _OUT, _ROWS, _POSITIONS = 6, 8, 2, 6
_CANDIDATES = {
    "Linear": (
        "colwise", "rowwise", "colwise_gather_output", "rowwise_split_input", "packed_colwise", "sequence_parallel",
        "all_reduce", "replicated_with_grad_allreduce", "replicate",
    ),
    "Embedding": (
        "embedding_rowwise", "embedding_colwise", "all_reduce", "replicated_with_grad_allreduce", "replicate",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one rank saw: placements of parameters, and tensors by what they are."""

    placements: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    refuses_changes: bool


def likeness(style: Any, kind: str) -> str | None:
    """The name of the style of planc's that does what `style` does to modules of class `kind`; None where none does.

    `kind` is `Linear` (with a bias and without) or `Embedding`. Both run on ranks of this process; nothing of what
    `style` raises comes out.
    """
    with quiet():
        for name in _CANDIDATES.get(kind, ()):
            if all(_alike(style, name, module) for module in _modules(kind)):
                return name
    return None


def _modules(kind: str) -> Iterator[nn.Module]:
    generator = torch.Generator().manual_seed(0)
    made: dict[str, list[nn.Module]] = {
        "Linear": [nn.Linear(_IN, _OUT), nn.Linear(_IN, _OUT, bias=False)],
        "Embedding": [nn.Embedding(_OUT, _IN)],
    }
    for module in made[kind]:
        module.double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        yield nn.Sequential(module)


def _alike(style: Any, name: str, model: nn.Module) -> bool:
    manifest = Manifest(build_manifest(model, "watched", trace=False))
    like = STYLES[name]()
    kind = like.type(manifest.modules["0"])
    hands_on_a_view = Boundary(kind, name, "0", ranks_for(2, ())).hands_on_a_view
    compared = 0
    for count in _RANKS:
        own = _operations(like, manifest, count)
        with RankThreads(count) as ranks:
            ours = ranks.run(partial(_of_ours, own, model, kind, count))
            if ours.failure is not None:
                continue  # such a module can't be split so
            theirs = ranks.run(partial(_of_theirs, style, model, kind, count))
        if theirs.failure is not None:
            return False
        if not all(_same(one, other) for one, other in zip(ours.results, theirs.results, strict=True)):
            return False
        if any(seen.refuses_changes != hands_on_a_view for seen in theirs.results):
            return False  # planc's own runtime never hands on a view, and runs a custom style as it is
        compared += 1
    return compared > 0


def _operations(style: Style, manifest: Manifest, count: int) -> Sequence[Operation]:
    to = Lowering(manifest, Layout(tp_size=count), "tp")
    module = manifest.modules["0"]
    parameters = [o for name, entry in module.parameters.items() for o in style.lower_parameter(name, entry, to)]
    return [*parameters, *style.lower_module(module, to)]


def _of_ours(operations: Sequence[Operation], model: nn.Module, kind: StyleType, count: int, rank: int) -> _Seen:
    meshes = build_meshes(Layout(tp_size=count), "cpu")
    return _look(apply_operations(copy.deepcopy(model), operations, meshes), kind, meshes, rank)


def _of_theirs(style: Any, model: nn.Module, kind: StyleType, count: int, rank: int) -> _Seen:
    meshes = build_meshes(Layout(tp_size=count), "cpu")
    own, style = copy.deepcopy(model), copy.deepcopy(style)  # a rank has an object of its own
    mesh: DeviceMesh = meshes.of("tp")
    for name in [name for name, _ in own[0].named_parameters()]:  # type: ignore[index]
        shard(style, own[0], name, mesh, f"0.{name}")  # type: ignore[index]
    style.install_forward(own[0], mesh)  # type: ignore[index]
    return _look(own, kind, meshes, rank)


def _look(model: nn.Module, kind: StyleType, meshes: Meshes, rank: int) -> _Seen:
    """Run a model without gradients and with them, on the input that `kind` asks for."""
    placements = tuple(str(p.placements) if isinstance(p, DTensor) else "" for p in model.parameters())
    tensors = [_local(parameter.detach()) for parameter in model.parameters()]
    given = _input(model[0], kind, meshes, rank)  # type: ignore[index]
    with torch.no_grad():
        tensors.append(_local(model(given.clone())))
    if given.is_floating_point():
        given.requires_grad_()
    output = model(given)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=output.dtype)
    (output * direction).sum().backward()
    tensors += [_local(tensor) for tensor in (output, given.grad) if tensor is not None]
    tensors += [gathered(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    return _Seen(placements, tuple(tensors), _refuses_changes(model, given))


def _input(module: nn.Module, kind: StyleType, meshes: Meshes, rank: int) -> Tensor:
    """An input in the placement that `kind` takes; where it says nothing, another one on every rank."""
    seed = rank if kind.input is None else 0
    generator = torch.Generator().manual_seed(seed)
    if isinstance(module, nn.Embedding):
        return torch.randint(_OUT, (_ROWS, _POSITIONS), generator=generator)
    whole = torch.randn(_ROWS, _POSITIONS, _IN, generator=generator, dtype=torch.float64)
    if not isinstance(kind.input, Shard):
        assert kind.input is None or isinstance(kind.input, Replicate)
        return whole
    start, end = chunk(whole.shape[kind.input.dim], meshes.size("tp"), meshes.rank("tp"))
    return whole.narrow(kind.input.dim, start, end - start).clone()


def _refuses_changes(model: nn.Module, given: Tensor) -> bool:
    """Whether torch refuses to change in place, in training, what comes out."""
    output = model(given)
    try:
        output += 1
    except RuntimeError:
        return True
    return False


def _local(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    return tensor.detach().clone()


def _same(one: _Seen, other: _Seen) -> bool:
    return (
        one.placements == other.placements
        and len(one.tensors) == len(other.tensors)
        and all(a.shape == b.shape and torch.allclose(a, b) for a, b in zip(one.tensors, other.tensors, strict=True))
    )
