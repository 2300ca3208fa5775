"""What a registered style does to a Linear or an embedding is seen by running it beside planc's own."""

from collections.abc import Callable
from typing import Any

import pytest
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers.distributed.expert_parallel import EPImplementationInterface
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
from transformers.distributed.tensor_parallel import (
    ColwiseParallel,
    EmbeddingParallel,
    RowwiseParallel,
    SequenceParallel,
    TensorParallelLayer,
)

import planc
from planc.styles import registry, theirs
from planc.styles.custom import ForeignStyle
from planc.verify.watching import likeness


class LosesGradients(ColwiseParallel):
    """The right result, and a gradient of zero for the input."""

    def transform_inputs_pre_forward(self, module: Any, args: Any, kwargs: Any, mesh: Any) -> Any:
        return (args[0].detach() + 0 * args[0], *args[1:]), kwargs


class AddsTheBiasTooOften(RowwiseParallel):
    """Each rank adds the whole bias before the sum."""

    def transform_output_post_forward(self, module: Any, output: Any, mesh: Any) -> Any:
        output = super().transform_output_post_forward(module, output, mesh)
        return output + module.bias.to_local() if module.bias is not None else output


class Counts(ColwiseParallel):
    """A style that remembers on which rank it is: an object for all ranks of a process would confuse them."""

    rank: int

    def install_forward(self, module: Any, mesh: Any) -> Any:
        self.rank = mesh.get_local_rank()
        return super().install_forward(module, mesh)

    def transform_output_post_forward(self, module: Any, output: Any, mesh: Any) -> Any:
        assert self.rank == mesh.get_local_rank()
        return super().transform_output_post_forward(module, output, mesh)


class CannotBeCopied(ColwiseParallel):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError


class FailsOnOneRank(ColwiseParallel):
    def transform_output_post_forward(self, module: Any, output: Any, mesh: Any) -> Any:
        if mesh.get_local_rank():
            raise ArithmeticError
        return DTensor.from_local(output, mesh, [Shard(-1)]).full_tensor()


SEEN: dict[str, tuple[Callable[[], Any], str, str | None]] = {
    "colwise": (ColwiseParallel, "Linear", "colwise"),
    "rowwise": (RowwiseParallel, "Linear", "rowwise"),
    "rowwise of a whole input": (lambda: RowwiseParallel(input_layouts=Replicate()), "Linear", "rowwise_split_input"),
    "a scattered sum": (lambda: RowwiseParallel(output_layouts=Shard(1)), "Linear", None),
    "a vocabulary": (EmbeddingParallel, "Embedding", "embedding_rowwise"),
    "vectors": (lambda: EmbeddingParallel(shard_dim=1), "Embedding", "embedding_colwise"),
    "sequence": (SequenceParallel, "Linear", "sequence_parallel"),
    # The dim is a label: the style moves nothing of a plain tensor.
    "another dim of the sequence": (lambda: SequenceParallel(sequence_dim=0), "Linear", "sequence_parallel"),
    "nothing": (TensorParallelLayer, "Linear", "replicate"),
    "lost gradients": (LosesGradients, "Linear", None),
    "a bias too many": (AddsTheBiasTooOften, "Linear", None),
    "state": (Counts, "Linear", "colwise"),
    "no copy": (CannotBeCopied, "Linear", None),
    "failure": (FailsOnOneRank, "Linear", None),
    "no style": (object, "Linear", None),
    "a module that is not watched": (ColwiseParallel, "LayerNorm", None),
}


@pytest.mark.parametrize("case", SEEN)
def test_likeness(case: str) -> None:
    style, kind, expected = SEEN[case]
    assert likeness(style(), kind) == expected


def test_transformers_own_objects_are_told_from_others() -> None:
    assert set(theirs.styles()) == set(registry.STYLES)
    assert all(theirs.is_their_own(name, style) for name, style in theirs.styles().items())
    assert not theirs.is_their_own("colwise", theirs.styles()["rowwise"])
    assert not theirs.is_their_own("colwise", Counts())
    assert set(theirs.ep_implementations()) == set(registry.EP_IMPLEMENTATIONS)


def test_an_object_in_the_place_of_a_style_of_transformers() -> None:
    """It is what runs; typed where it does what some style does, else unknown."""
    plan = {"tp_size": 2, "tp_plan": {"model.layers.*.self_attn.q_proj": "colwise"}}
    operations = {type(o).__name__ for o in planc.compile("llama-3.1-8b", plan).operations}
    assert "CustomStyle" not in operations
    ALL_PARALLEL_STYLES.register("colwise", Counts())
    assert issubclass(registry.get("colwise") or object, ForeignStyle)
    assert planc.check("llama-3.1-8b", plan).ok
    program = planc.compile("llama-3.1-8b", plan)
    assert {o.target for o in program.operations if o.op == "custom_style"} >= {"model.layers.0.self_attn.q_proj"}
    ALL_PARALLEL_STYLES.register("colwise", ColwiseParallel(output_layouts=Replicate()))
    assert not planc.check("llama-3.1-8b", plan).ok


def test_an_implementation_that_needs_one_batch() -> None:
    from transformers.distributed.expert_parallel import AllReduceEP

    EPImplementationInterface.register("summing", AllReduceEP)
    plan = {"fsdp_size": 2, "ep_size": 2, "ep_implementation": "summing"}
    assert [d.code for d in planc.check("qwen3-30b-a3b", plan).diagnostics if d.severity.value == "error"] == ["PL207"]
    shared = {"tp_size": 2, "ep_size": 2, "ep_implementation": "summing"}
    report = planc.check("qwen3-30b-a3b", shared)
    assert report.ok and [d.message for d in report.diagnostics if d.code == "PL420"] == [
        "`model.layers.*.mlp.experts`: how `summing` brings tokens to their experts is not known"
    ]


def test_a_change_in_place_of_what_a_custom_style_hands_on() -> None:
    """The object is the same in both runtimes: what transformers can't train planc can't either."""
    ALL_PARALLEL_STYLES.register("summed", RowwiseParallel())
    key = "model.layers.*.feed_forward.shared_expert.down_proj"
    plan = {"tp_size": 2, "tp_plan": {key: "summed"}}
    (found,) = [d for d in planc.check("llama4_text", plan).diagnostics if d.code == "PL415"]
    assert found.severity.value == "error" and found.message.endswith("which both runtimes refuse in training")


def test_a_watched_style_among_ranks_of_several_batches() -> None:
    """It would combine what doesn't belong together, as `colwise` would."""
    ALL_PARALLEL_STYLES.register("cut", ColwiseParallel())
    plan = {"fsdp_size": 2, "ep_size": 2, "ep_plan": {"model.layers.*.self_attn.q_proj": "cut"}}
    found = planc.check("qwen3-30b-a3b", plan).diagnostics
    assert [d.code for d in found if d.severity.value == "error"] == ["PL218"]
