"""Double precision all the way."""

import pytest
import torch

from planc.verify.exact import Exact
from planc.verify.grouped_mm import grouped_mm


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        lambda x: x.to(dtype=torch.float32),
        lambda x: torch.softmax(x, dim=-1, dtype=torch.float32),
        lambda x: torch.ones(2, dtype=torch.float32),
        lambda x: x.type(torch.float32),
    ],
)
def test_single_precision_is_answered_with_double(ask) -> None:  # type: ignore[no-untyped-def]
    with Exact():
        assert ask(torch.ones(2, dtype=torch.float64)).dtype is torch.float64
    assert ask(torch.ones(2, dtype=torch.float64)).dtype is torch.float32


def test_grouped_mm_is_a_product_for_each_group() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    with Exact():
        output = torch.nn.functional.grouped_mm(rows, weights, offs=torch.tensor([1, 4]))
    assert torch.equal(output[:4], torch.cat([rows[:1] @ weights[0], rows[1:4] @ weights[1]]))
    assert bool(output[4:].isnan().all()), "the kernel leaves rows of no group undefined"


def test_grouped_mm_has_the_right_gradient() -> None:
    rows = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    offs = torch.tensor([1, 4])
    assert torch.autograd.gradcheck(lambda a, b: grouped_mm(a, b, offs=offs), (rows, weights))
