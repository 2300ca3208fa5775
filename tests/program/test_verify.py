"""The verifier sees each fault that a program can have."""

from dataclasses import replace

import pytest

from planc.ir.operations import (
    DispatchExperts,
    LocalExperts,
    LookupShard,
    Operation,
    RunDistributed,
    RunLocal,
    ShardParameter,
    SplitStages,
    SumGradient,
    SumOutputGradient,
    TransformInput,
    TransformOutput,
    WrapFsdp,
)
from planc.layouts.layout import Layout
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.program.program import Instruction, ModelIdentity, Program
from planc.program.verify import verify
from tests.program.models import compiled, linear, mixture, weights

R, P = Replicate(), Partial()
LAYOUT = Layout(tp_size=2, fsdp_size=2, ep_size=4)
STAGED = Layout(pp_size=2)
EXPERTS = "model.layers.0.mlp.experts"
EMBEDDING = "model.embed_tokens"
ROWS = ShardParameter(f"{EMBEDDING}.weight", "tp", Shard(0))
FREE = {"axes": ("fsdp",), "reshard_after_forward": True}


def wrap(*modules: str, axes: tuple[str, ...] = ("fsdp",), divisor: int | None = None) -> WrapFsdp:
    return WrapFsdp(modules, axes, True, gradient_divisor=divisor)  # type: ignore[arg-type]


def program(*operations: Operation, layout: Layout = LAYOUT) -> Program:
    identity = ModelIdentity("toy", "Toy", mixture().hash)
    return Program(layout, identity, tuple(Instruction("tp", op) for op in operations))


FAULTS: dict[str, tuple[tuple[Operation, ...], str]] = {
    "no such module": ((RunLocal("model.layer"),), "run_local: the model has no module `model.layer`"),
    "no such parameter": ((SumGradient("norm.weight", "tp"),), "the model has no parameter `norm.weight`"),
    "no such layer": ((RunLocal("model.layers.3.mlp"),), "the model has no module `model.layers.3.mlp`"),
    "dim out of range": (
        (ShardParameter("model.norm.weight", "tp", Shard(1)),),
        "has the shape (24,), S(1) needs dim 1",
    ),
    "negative dim": ((ShardParameter("model.norm.weight", "tp", Shard(-1)),), "S(-1) needs dim -1"),
    "no parts": ((ShardParameter("lm_head.weight", "tp", StridedShard(0, 0)),), "`lm_head.weight` in 0 parts"),
    "partial parameter": ((ShardParameter("lm_head.weight", "tp", P),), "which can't be partial"),
    "placed twice": (
        (ShardParameter("lm_head.weight", "tp", Shard(0)), ShardParameter("lm_head.weight", "tp", Shard(1))),
        "`lm_head.weight` is placed twice on tp",
    ),
    "axis of one rank": ((SumGradient("lm_head.weight", "pp"),), "sum_gradient: the axis `pp` has one rank"),
    "sharded after its group": (
        (wrap("lm_head"), ShardParameter("lm_head.weight", "tp", Shard(0))),
        "`lm_head.weight` is in an FSDP group already",
    ),
    "wrapped twice": ((wrap("lm_head"), wrap("lm_head")), "wrap_fsdp: `lm_head` is wrapped twice"),
    "outer before inner": (
        (wrap("model.layers.0"), wrap(EXPERTS)),
        f"`{EXPERTS}` is wrapped after `model.layers.0`, which contains it",
    ),
    "anything after the root": ((wrap(""), wrap("lm_head")), "`lm_head` is wrapped after `the model`"),
    "wrong axes": ((wrap("lm_head", axes=("tp",)),), "neither a shard axis nor"),
    "axes reversed": ((wrap("lm_head", axes=("fsdp", "dp_replicate")),), "neither a shard axis nor"),
    "divided by nothing": ((wrap("lm_head", divisor=0),), "gradients are divided by 0"),
    "divided by more than the batches": (
        (wrap("lm_head", divisor=4),),
        "gradients are divided by 4, and 2 ranks see a batch of their own",
    ),
    "divided twice": (
        (replace(wrap("lm_head", axes=("efsdp",), divisor=2), sum_gradients=True),),
        "a sum over efsdp, which has one rank",
    ),
    "another's bias": ((RunLocal("lm_head", ("model.norm.weight",)),), "is no parameter of `lm_head` itself"),
    "lookup in shards that aren't": (
        (RunLocal(EMBEDDING), LookupShard(EMBEDDING, "tp", 50)),
        f"the rows of `{EMBEDDING}` aren't sharded on tp",
    ),
    "lookup in DTensors": ((ROWS, LookupShard(EMBEDDING, "tp", 50)), "isn't run on its local rows"),
    "lookup of other rows": (
        (ROWS, RunLocal(EMBEDDING), LookupShard(EMBEDDING, "tp", 51)),
        "has no weight of 51 rows",
    ),
    "wrong experts": ((LocalExperts(EXPERTS, "ep", 3),), "has no parameter of 12 experts"),
    "experts too late": (
        (RunLocal(EXPERTS), DispatchExperts(EXPERTS, "ep", "tp", "auto"), LocalExperts(EXPERTS, "ep", 2)),
        "dispatches to its experts already",
    ),
    "dispatch to DTensors": ((DispatchExperts(EXPERTS, "ep", "tp", "auto"),), "isn't run on its local experts"),
    "no features": ((SumOutputGradient("lm_head", "tp", 0),), "0 features of `lm_head`"),
    "negative argument": ((TransformInput("lm_head", "tp", -1, R, R, P),), "has no argument -1"),
    "gather without a size": ((TransformOutput("lm_head", "tp", Shard(-1), R, R),), "needs the size of the whole dim"),
    "argument that a Linear doesn't take": (
        (TransformInput("lm_head", "tp", 1, R, R, P),),
        "`lm_head` has no argument 1",
    ),
    "gather of another size": (
        (TransformOutput("lm_head", "tp", Shard(-1), R, R, size=49),),
        "the last dim of `lm_head` isn't 49 wide",
    ),
    "strided values": (
        (TransformOutput("lm_head", "tp", StridedShard(-1, 2), R, R),),
        "no local tensor of `lm_head` goes from or to S(-1, parts=2)",
    ),
    "output transformed twice": (
        (TransformOutput("lm_head", "tp", P, R, R), TransformOutput("lm_head", "tp", P, R, R, size=50)),
        "`lm_head` is transformed twice on tp",
    ),
    "gradient summed in both transforms": (
        (TransformInput("lm_head", "tp", 0, R, R, P), TransformInput("lm_head", "tp", 0, R, R, P, size=24)),
        "`lm_head` is transformed twice on tp",
    ),
    "partial from DTensor": ((RunDistributed("lm_head", "tp", R, P),), "would hand on a partial value"),
    "strided to DTensor": ((RunDistributed("lm_head", "tp", StridedShard(0, 2), R),), "is in strided shards"),
    "sum of different rows": (
        (ShardParameter("lm_head.weight", "tp", Shard(0)), SumGradient("lm_head.weight", "tp")),
        "hold different parts of `lm_head.weight`",
    ),
    "summed twice": (
        (SumGradient("lm_head.weight", "tp"), SumGradient("lm_head.weight", "ep")),
        "the gradient of `lm_head.weight` is summed twice",
    ),
    "axis of FSDP": ((ShardParameter("lm_head.weight", "fsdp", Shard(0)),), "`fsdp` is no axis of tensor or expert"),
    "too many features": ((SumOutputGradient("lm_head", "tp", 51),), "51 features of `lm_head`"),
    "dispatch to a Linear": (
        (RunLocal("lm_head"), DispatchExperts("lm_head", "ep", "tp", "auto")),
        "`lm_head` holds no experts",
    ),
    "dispatch of other tokens": (
        (RunLocal(EXPERTS), DispatchExperts(EXPERTS, "ep", "fsdp", "auto")),
        "the ranks of fsdp don't hold the same tokens",
    ),
    "group of nothing": ((wrap(),), "a group of no modules"),
    "twice in one group": ((wrap("lm_head", "lm_head"),), "`lm_head` is wrapped twice"),
    "one within the other": ((wrap("model.layers.0", EXPERTS),), f"`{EXPERTS}` is wrapped after `model.layers.0`"),
    "group of a list": ((wrap("model.layers"),), "wrap what it holds"),
    "partial hand-over": ((TransformOutput("lm_head", "tp", R, P, R),), "would hand on a partial value"),
}


@pytest.mark.parametrize(("operations", "says"), FAULTS.values(), ids=FAULTS)
def test_faults(operations: tuple[Operation, ...], says: str) -> None:
    (fault,) = verify(program(*operations), mixture())
    assert says in fault


STAGES = SplitStages("model.layers", ((0, 2), (2, 3)), ("model.embed_tokens",), ("model.norm", "lm_head"))


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ((STAGES,), None),
        ((STAGES, STAGES), "the stages are split twice"),
        ((replace(STAGES, ranges=((0, 3),)),), "1 stages for pp_size=2"),
        ((replace(STAGES, ranges=((0, 1), (2, 3))),), "don't cover the 3 layers"),
        ((replace(STAGES, ranges=((0, 2), (1, 3))),), "don't cover the 3 layers"),
        ((replace(STAGES, ranges=((0, 2), (2, 4))),), "don't cover the 3 layers"),
        ((replace(STAGES, layers="model.blocks"),), "no module `model.blocks`"),
        ((replace(STAGES, layers="model", first=(), last=()),), "`model` is no list of layers"),
        ((replace(STAGES, first=("model",)),), "`model` is no module beside `model.layers`"),
        ((replace(STAGES, last=("model.layers.2.mlp",)),), "`model.layers.2.mlp` is no module beside `model.layers`"),
        ((replace(STAGES, first=("model.norm",)),), "`model.norm` can't be left to the first stage"),
        ((replace(STAGES, last=("",)),), "`the model` is no module beside `model.layers`"),
    ],
)
def test_stages(operations: tuple[Operation, ...], says: str | None) -> None:
    faults = verify(program(*operations, layout=STAGED), mixture())
    assert (says is None) == (not faults)
    assert says is None or says in faults[0]


def test_illegal_expert_meshes() -> None:
    assert verify(program(layout=Layout(fsdp_size=3, ep_size=2)), mixture()) == [
        "ep_size=2 doesn't divide fsdp_size * tp_size = 3"
    ]
    assert verify(program(layout=Layout(fsdp_size=3, tp_size=2, ep_size=3)), mixture()) == [
        "ep_size=3 is no multiple of tp_size=2"
    ]


def test_scalars_in_an_fsdp_group() -> None:
    modules = mixture().file.modules
    scalar = linear("model.scaled", 1, 1, at=()).model_copy(update={"parameters": weights(scale=())})
    manifest = mixture(modules=(*modules, scalar))
    assert verify(program(wrap("")), manifest) == [
        "wrap_fsdp: `model.scaled.scale` is a scalar, FSDP2 has no dim to shard"
    ]


def test_what_lowering_makes_is_sound() -> None:
    manifest = mixture()
    for plan in ({"tp_size": 2}, {"tp_size": 2, "fsdp_size": 4, "ep_size": 4}, {"tp_size": 2, "pp_size": 3}):
        assert verify(compiled(manifest, plan), manifest) == []


def test_tied_parameters_are_one_tensor() -> None:
    manifest = mixture(tied=True)
    own = ModelIdentity("toy", "Toy", manifest.hash)
    operations = (ROWS, ShardParameter("lm_head.weight", "tp", Shard(1)))
    faults = verify(Program(LAYOUT, own, tuple(Instruction("tp", op) for op in operations)), manifest)
    assert any("are one tensor with two placements on tp" in fault for fault in faults)
    assert (
        verify(
            Program(
                LAYOUT, own, (Instruction("tp", ROWS), Instruction("tp", replace(ROWS, parameter="lm_head.weight")))
            ),
            manifest,
        )
        == []
    )
