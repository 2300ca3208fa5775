"""What plans compile to: order, FSDP groups, stages, refusals."""

import pytest

from planc.ir.operations import (
    DispatchExperts,
    LocalExperts,
    Operation,
    RunLocal,
    ShardParameter,
    SplitStages,
    SumGradient,
    TransformInput,
    TransformOutput,
    WrapFsdp,
)
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.model.manifest import Experts, Plans
from planc.program.errors import ProgramError
from planc.program.lower import PASSES, lower
from planc.program.placements import RankPlacements
from planc.program.program import Program
from planc.program.stages import stage_ranges
from tests.program.models import LAYERS, compiled, mixture, resolved

R, P = Replicate(), Partial()
EXPERTS = "model.layers.0.mlp.experts"
ATTENTION = "model.layers.0.self_attn"


def wraps(program: Program) -> list[WrapFsdp]:
    return [op for op in program.operations if isinstance(op, WrapFsdp)]


def on(program: Program, name: str) -> list[Operation]:
    """The operations on one module and its own parameters, in order."""

    def names(op: Operation) -> str:
        return str(getattr(op, "module", getattr(op, "parameter", "")))

    return [op for op in program.operations if names(op) == name or names(op).rpartition(".")[0] == name]


def test_tensor_parallelism() -> None:
    program = compiled(mixture(), {"tp_size": 2})
    assert on(program, f"{ATTENTION}.q_proj") == [
        ShardParameter(f"{ATTENTION}.q_proj.weight", "tp", Shard(0)),
        TransformInput(f"{ATTENTION}.q_proj", "tp", 0, R, R, gradient=P),
        RunLocal(f"{ATTENTION}.q_proj"),
    ]
    assert on(program, f"{ATTENTION}.o_proj") == [
        ShardParameter(f"{ATTENTION}.o_proj.weight", "tp", Shard(1)),
        ShardParameter(f"{ATTENTION}.o_proj.bias", "tp", R),
        RunLocal(f"{ATTENTION}.o_proj", added_after=(f"{ATTENTION}.o_proj.bias",)),
        TransformOutput(f"{ATTENTION}.o_proj", "tp", P, R, gradient=R),
    ]
    assert on(program, f"{ATTENTION}.q_norm") == [SumGradient(f"{ATTENTION}.q_norm.weight", "tp")]
    assert on(program, EXPERTS) == [
        ShardParameter(f"{EXPERTS}.gate_up_proj", "tp", StridedShard(1, 2)),
        ShardParameter(f"{EXPERTS}.down_proj", "tp", Shard(2)),
        TransformInput(EXPERTS, "tp", 0, R, R, gradient=P),
        TransformInput(EXPERTS, "tp", 2, R, R, gradient=P),
        RunLocal(EXPERTS),
        TransformOutput(EXPERTS, "tp", P, R, gradient=R),
    ]
    head = next(op for op in on(program, "lm_head") if isinstance(op, TransformOutput))
    assert head == TransformOutput("lm_head", "tp", Shard(-1), R, gradient=R, size=50)


def test_expert_parallelism_takes_the_experts_over() -> None:
    program = compiled(mixture(), {"tp_size": 2, "fsdp_size": 4, "ep_size": 4})
    assert on(program, EXPERTS) == [
        LocalExperts(EXPERTS, "ep", 2),
        ShardParameter(f"{EXPERTS}.gate_up_proj", "ep", Shard(0)),
        ShardParameter(f"{EXPERTS}.down_proj", "ep", Shard(0)),
        RunLocal(EXPERTS),
        DispatchExperts(EXPERTS, "ep", "tp", "auto"),
    ]


def test_an_ep_plan_that_dispatches_nothing_is_not_applied() -> None:
    """As in transformers: its rules still switch the TP rules of the experts off."""
    plan = {"fsdp_size": 2, "ep_size": 2, "ep_plan": {"model.layers.*.mlp.experts": "replicate"}}
    assert not [op for op in compiled(mixture(), plan).operations if getattr(op, "axis", None) == "ep"]


@pytest.mark.parametrize(
    ("sizes", "axes", "expert_axes", "divisor", "sums"),
    [
        ({"fsdp_size": 4, "ep_size": 2}, ("fsdp",), ("efsdp",), 4, True),
        ({"fsdp_size": 4, "ep_size": 4}, ("fsdp",), ("efsdp",), 4, False),
        ({"tp_size": 2, "fsdp_size": 4, "ep_size": 4}, ("fsdp",), ("efsdp",), 4, True),
        (
            {"dp_replicate_size": 2, "fsdp_size": 4, "ep_size": 2},
            ("dp_replicate", "fsdp"),
            ("dp_replicate", "efsdp"),
            8,
            True,
        ),
    ],
)
def test_fsdp_groups(
    sizes: dict[str, int], axes: tuple[str, ...], expert_axes: tuple[str, ...], divisor: int, sums: bool
) -> None:
    groups = wraps(compiled(mixture(), sizes))
    experts = [g for g in groups if "experts" in g.modules[0]]
    assert len(experts) == LAYERS
    assert {(g.axes, g.gradient_divisor, g.sum_gradients, g.reshard_after_forward) for g in experts} == {
        (expert_axes, divisor, sums, True)
    }
    others = [g for g in groups if g not in experts]
    assert {g.axes for g in others} == {axes}
    assert {g.gradient_divisor for g in others} == {None}
    assert [g.modules for g in others[-3:]] == [("model.embed_tokens",), ("model.norm", "lm_head"), ("",)]
    assert [g.reshard_after_forward for g in others[-3:]] == [True, False, None]


def test_a_tied_head_is_wrapped_once_with_the_norm() -> None:
    """The head's rule moves to the embedding, which then is in the kept pair."""
    groups = wraps(compiled(mixture(tied=True), {"fsdp_size": 2}))
    assert [g.modules for g in groups[-2:]] == [("model.embed_tokens", "model.norm"), ("",)]
    assert not [g for g in groups if "lm_head" in g.modules]


def test_kept_modules_that_are_no_norm_and_head_get_groups_of_their_own() -> None:
    groups = wraps(compiled(mixture(), {"fsdp_size": 2, "fsdp_plan": {"model.embed_tokens": "keep_full_weight"}}))
    kept = [g.modules for g in groups if g.reshard_after_forward is False]
    assert sorted(kept) == [("lm_head",), ("model.embed_tokens",), ("model.norm",)]


def test_inner_modules_are_wrapped_before_outer_ones() -> None:
    manifest = mixture(float32_modules=("model.layers.*.mlp.gate",))
    order = [g.modules[0] for g in wraps(compiled(manifest, {"fsdp_size": 2}))]
    for layer in range(LAYERS):
        assert order.index(f"model.layers.{layer}.mlp.gate") < order.index(f"model.layers.{layer}")
    assert order[-1] == ""


def test_fsdp_options() -> None:
    plain = compiled(mixture(), {"fsdp_size": 2})
    program = compiled(mixture(), {"fsdp_size": 2, "fsdp_mixed_precision": True, "fsdp_cpu_offload": True})
    assert {(g.mixed_precision, g.cpu_offload) for g in wraps(program)} == {(True, True)}
    assert {(g.mixed_precision, g.cpu_offload) for g in wraps(plain)} == {(False, False)}
    assert program.hash != plain.hash


@pytest.mark.parametrize(
    ("layers", "stages", "ranges"),
    [
        (32, 3, ((0, 11), (11, 22), (22, 32))),
        (4, 2, ((0, 2), (2, 4))),
        (2, 3, ((0, 1), (1, 2), (2, 2))),
        (5, 1, ((0, 5),)),
    ],
)
def test_stage_ranges(layers: int, stages: int, ranges: tuple[tuple[int, int], ...]) -> None:
    assert stage_ranges(layers, stages) == ranges


@pytest.mark.parametrize("tied", [False, True])
def test_pipeline_stages(tied: bool) -> None:
    manifest = mixture(tied=tied)
    program = compiled(manifest, {"tp_size": 2, "pp_size": 2})
    (stages,) = [op for op in program.operations if isinstance(op, SplitStages)]
    assert program.operations[0] == stages
    assert stages.ranges == ((0, 2), (2, 3))
    held = [RankPlacements(program, manifest).on_rank(rank) for rank in (0, 2)]
    assert [f"model.layers.{layer}.mlp.gate.weight" in held[0] for layer in range(LAYERS)] == [True, True, False]
    assert [f"model.layers.{layer}.mlp.gate.weight" in held[1] for layer in range(LAYERS)] == [False, False, True]
    assert [name in stage for stage in held for name in ("model.embed_tokens.weight", "lm_head.weight")] == [
        True, False, tied, True,
    ]  # fmt: skip


def test_bytes_of_a_rank() -> None:
    """Experts over 4 ranks of `ep` and 2 of `efsdp`; the rest over 2 of `tp` and 4 of `fsdp`."""
    manifest = mixture()
    program = compiled(manifest, {"tp_size": 2, "fsdp_size": 4, "ep_size": 4})
    placements = RankPlacements(program, manifest)
    assert placements.region(f"{EXPERTS}.gate_up_proj", 5).dims == (((3, 4),), ((0, 20),), ((0, 24),))
    assert placements.region(f"{ATTENTION}.q_proj.weight", 5).dims == (((18, 21),), ((0, 24),))
    assert placements.region("model.norm.weight", 5).dims == (((12, 18),),)
    assert dict(placements.placements(f"{ATTENTION}.o_proj.weight")) == {"tp": Shard(1), "fsdp": Shard(0)}
    whole = sum(r.count for rank in range(8) for n, r in placements.on_rank(rank).items() if ".experts." in n)
    assert whole == LAYERS * 8 * (20 * 24 + 24 * 10)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"tp_size": 2, "tp_plan": {"model.layers.*.mlp.gate": "colwise"}}, "`ToyRouter` has no `out_features`"),
        ({"tp_size": 2, "tp_plan": {"lm_head": "colwise_gather"}}, "`colwise_gather` is no tp style"),
        ({"tp_size": 2, "tp_plan": {"model.norm": "mla_kv_a_proj"}}, "has no `qk_rope_head_dim`"),
        ({"tp_size": 2, "tp_plan": {"model.norm": "ep_dispatch_experts"}}, "can't stand in `tp_plan`"),
        ({"fsdp_size": 3, "ep_size": 3}, "8 experts don't divide over ep_size=3"),
        ({"fsdp_size": 2, "ep_size": 2, "ep_implementation": "all_reduce"}, "ep_size == tp_size"),
        ({"fsdp_size": 2, "ep_size": 2, "ep_implementation": "nccl"}, "`ep_implementation: nccl` names no"),
        ({"fsdp_size": 2, "fsdp_plan": {"model.layers": "free_full_weight"}}, "`ModuleList` has none"),
        ({"fsdp_size": 2, "fsdp_plan": {"model.layers.*.mlp.gate.weight": "free_full_weight"}}, "this is a parameter"),
        (
            {"fsdp_size": 2, "ep_size": 2, "fsdp_plan": {"model.layers.*.mlp.experts": "free_full_weight"}},
            f"`{EXPERTS}` is wrapped twice",
        ),
    ],
)
def test_refusals_name_the_rule_and_the_reason(plan: dict[str, object], says: str) -> None:
    with pytest.raises(ProgramError) as refusal:
        compiled(mixture(), plan)
    assert says in str(refusal.value)


def test_experts_that_take_no_routes_cannot_be_dispatched_to() -> None:
    """As Llama 4's, which get tokens scaled beforehand."""
    unrouted = {"experts": Experts(num_experts=8, routed=False)}
    modules = tuple(m.model_copy(update=unrouted) if m.experts else m for m in mixture().file.modules)
    with pytest.raises(ProgramError, match="`ToyExperts` doesn't take hidden states, expert ids and routing weights"):
        compiled(mixture(modules=modules), {"fsdp_size": 2, "ep_size": 2})


def test_sizes_without_a_plan_are_refused() -> None:
    with pytest.raises(ProgramError, match="2 ranks for tp, but neither `ToyForCausalLM` nor the plan has a tp rule"):
        compiled(mixture(plans=Plans()), {"tp_size": 2})


def test_all_faults_at_once_each_rule_once() -> None:
    plan = {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.gate": "rowwise", "model.norm": "colwise"}}
    with pytest.raises(ProgramError) as refusal:
        compiled(mixture(), plan)
    assert len(refusal.value.faults) == 2
    assert refusal.value.faults[0].startswith("plan.yaml:3: `model.layers.*.mlp.gate: rowwise` on `model.layers.0.")


def test_a_tied_parameter_lies_where_its_owner_does() -> None:
    """As transformers ties again after it has loaded; that the head can't take it so is what `check` says."""
    program = compiled(mixture(tied=True), {"tp_size": 2, "tp_plan": {"lm_head": "replicate"}})
    placed = {op.parameter: op.placement for op in program.operations if isinstance(op, ShardParameter)}
    assert placed["lm_head.weight"] == placed["model.embed_tokens.weight"] == Shard(0)
    assert "lm_head" not in {op.module for op in program.operations if isinstance(op, RunLocal)}


def test_a_model_without_the_names_of_stages_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"has no `transformer\.layers`"):
        compiled(mixture(base_model_prefix="transformer"), {"pp_size": 2})


def test_every_pass_can_be_dumped() -> None:
    manifest = mixture()
    seen: list[tuple[str, int]] = []
    plan, resolution = resolved(manifest, {"tp_size": 2, "fsdp_size": 2, "ep_size": 2})
    program = lower(plan, resolution, manifest, lambda name, p: seen.append((name, len(p.instructions))))
    assert [name for name, _ in seen] == [step.name for step in PASSES]
    assert all(step.contract for step in PASSES)
    assert seen[-1][1] == len(program.instructions)
    assert seen[3][1] > seen[4][1] == seen[5][1]


def test_provenance_reaches_the_plan_line() -> None:
    program = compiled(mixture(), {"tp_size": 2, "tp_plan": {"model.layers.*.self_attn.q_proj": "colwise"}})
    rules = {
        (i.rule.file, i.rule.line) for i in program.instructions if i.rule and i.rule.key.endswith("self_attn.q_proj")
    }
    assert rules == {("plan.yaml", 3)}
    assert {i.rule.file for i in program.instructions if i.rule} == {"plan.yaml", "<ToyForCausalLM.tp_plan>"}
