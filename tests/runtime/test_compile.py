"""`torch.compile` of an applied model gives what it gives uncompiled."""

import copy

import pytest
import torch

from planc.layouts.layout import Layout
from tests.runtime.by_hand import operations
from tests.runtime.models import batch, build, run
from tests.runtime.ranks import run_ranks


def differing() -> list[str]:
    from transformers.distributed import DistributedConfig

    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    model = build("qwen3")
    styles, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=2))
    apply_operations(model, operations(model, styles), build_meshes(Layout(tp_size=2)))
    compiled = torch.compile(copy.copy(model), backend="aot_eager")
    with torch.no_grad():
        inference = torch.allclose(compiled(batch()).logits, model(batch()).logits, atol=1e-4, rtol=1e-4)
    logits, loss, gradients = run(model, batch())
    own_logits, own_loss, own = run(compiled, batch())
    found = {n.removeprefix("_orig_mod."): g for n, g in own.items()}
    wrong = [n for n, g in gradients.items() if not torch.allclose(found[n], g, atol=1e-4, rtol=1e-4)]
    same = torch.allclose(own_logits, logits, atol=1e-4, rtol=1e-4) and torch.allclose(own_loss, loss)
    return wrong + ([] if inference else ["inference"]) + ([] if same else ["logits"])


@pytest.mark.ranks
@pytest.mark.slow
def test_compiled_as_eager() -> None:
    assert run_ranks(2, differing, timeout=240) == [[], []]
