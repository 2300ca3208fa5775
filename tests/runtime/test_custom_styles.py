"""Custom styles at work: classes with some of the methods, arguments, and what can't be loaded."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from planc.ir.operations import CustomStyle
from planc.layouts.layout import Layout
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter import apply_operations
from planc.runtime.mesh import build_meshes
from planc.styles import registry
from tests.runtime.ranks import run_ranks


class Times:
    """Multiplies what comes out by a number and by how many ranks there are: a class that derives from nothing."""

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    def transform_output_post_forward(self, module: Any, output: Tensor, mesh: Any) -> Tensor:
        return output * self.factor * mesh.size()


def multiplied() -> list[float]:
    registry.register("times", Times)
    meshes = build_meshes(Layout(tp_size=2))
    found = []
    for arguments in ((), (("factor", 5),)):
        model = nn.Sequential(nn.Identity())
        operations = [CustomStyle("0", False, "tp", "times", arguments)]
        found.append(float(apply_operations(model, operations, meshes)(torch.ones(()))))
    return found


@pytest.mark.ranks
def test_a_class_needs_only_the_methods_that_it_means() -> None:
    assert run_ranks(2, multiplied) == [[4.0, 10.0]] * 2


def refusals() -> list[str]:
    point = EntryPoint("broken", "tests.no_such_module", registry.STYLE_GROUP)
    registry._entry_points = {registry.STYLE_GROUP: {"broken": point}}.__getitem__  # type: ignore[assignment]
    meshes, found = build_meshes(Layout(tp_size=1)), []
    for name in ("nobodys", "broken"):
        with pytest.raises(ApplicationError) as refusal:
            apply_operations(nn.Sequential(nn.Identity()), [CustomStyle("0", False, "tp", name)], meshes)
        found.append(str(refusal.value))
    return found


@pytest.mark.ranks
def test_what_cant_be_loaded_is_told() -> None:
    (found,) = run_ranks(1, refusals)
    assert found == [
        "no style is registered under the name `nobodys` (for `0`): import what registers it, or name that by "
        "`--styles-module`",
        "the style `broken` can't be loaded: No module named 'tests.no_such_module'",
    ]
