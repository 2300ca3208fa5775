"""A failure while a program is applied says what it leaves behind."""

from typing import Any

import pytest
from torch import nn

from planc.ir.operations import ShardParameter
from planc.layouts.placement import Shard
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter import apply_operations


def test_a_failure_in_the_middle_says_that_the_model_is_spoiled() -> None:
    no_meshes: Any = None
    with pytest.raises(AttributeError) as raised:
        apply_operations(nn.Linear(4, 4), [ShardParameter("weight", "tp", Shard(0))], no_meshes)
    assert "the model is spoiled" in raised.value.__notes__[0]


def test_what_is_refused_before_leaves_it_whole() -> None:
    no_meshes: Any = None
    with pytest.raises(ApplicationError) as raised:
        apply_operations(nn.Linear(4, 4), [ShardParameter("gone", "tp", Shard(0))], no_meshes)
    assert not hasattr(raised.value, "__notes__")
