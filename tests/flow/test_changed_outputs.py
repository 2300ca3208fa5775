"""Which styles hand on what can't be changed in place in training: as the objects of transformers do it."""

from typing import Any

import pytest
import torch
from torch import nn

from planc.flow.boundaries import Boundary
from planc.flow.plan import ranks_for
from planc.layouts.layout import Layout
from planc.model.manifest import Module, ModuleEntry, ParameterEntry
from planc.runtime.mesh import build_meshes
from planc.styles.registry import STYLES
from tests.check.hand_made import linear, toy
from tests.runtime.ranks import run_ranks


class Named(nn.Linear):
    """A projection as `mla_kv_a_proj` finds it."""

    class config:  # noqa: N801
        qk_rope_head_dim = 2


def placed(name: str) -> Module:
    """The module that a style stands on in here."""
    weight = ParameterEntry(name="weight", shape=(4, 4), dtype="float32")
    sizes = {"num_embeddings": 4, "embedding_dim": 4}
    table = ModuleEntry(name="made", class_name="Embedding", sizes=sizes, parameters=(weight,))
    return toy(table if name.startswith("embedding") else linear("made", 4, 4)).modules["made"]


# Those that may stand on a module. Dispatched experts are closed to the flow.
NAMES = tuple(sorted(n for n, s in STYLES.items() if "tp" in s.plans and s().objection(placed(n)) is None))


def refused_by_transformers() -> dict[str, tuple[bool, bool]]:
    """By style, whether torch refuses to change its output in place: with gradients, and without."""
    import transformers.distributed.tensor_parallel
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    assert transformers.distributed.tensor_parallel
    mesh = build_meshes(Layout(tp_size=1)).of("tp")
    return {
        name: (
            refuses(ALL_PARALLEL_STYLES[name], name, mesh, True),
            refuses(ALL_PARALLEL_STYLES[name], name, mesh, False),
        )
        for name in NAMES
    }


def refuses(style: Any, name: str, mesh: Any, gradients: bool) -> bool:
    is_embedding = name.startswith("embedding")
    module: nn.Module = nn.Embedding(4, 4) if is_embedding else Named(4, 4)
    for parameter in list(module._parameters):
        style.shard_param(module, parameter, mesh)
    style.install_forward(module, mesh)
    with torch.set_grad_enabled(gradients):
        output = module(torch.tensor([1, 2]) if is_embedding else torch.randn(2, 4))
        try:
            output += 1
        except RuntimeError as error:
            assert "is a view and is being modified inplace" in str(error)
            return True
    return False


def hands_on_a_view(name: str) -> bool:
    kind = STYLES[name]().type(placed(name))
    return Boundary(kind, name, "made", ranks_for(2, {4})).hands_on_a_view


@pytest.mark.ranks
def test_styles_hand_on_what_transformers_does() -> None:
    (found,) = run_ranks(1, refused_by_transformers)
    assert set(found) == set(STYLES) - {"ep_dispatch_experts", "grouped_gemm", "packed_rowwise"}
    assert {True, False} == {refused for refused, _ in found.values()}
    assert {name: refused for name, (refused, _) in found.items()} == {name: hands_on_a_view(name) for name in found}
    assert not any(without for _, without in found.values())
