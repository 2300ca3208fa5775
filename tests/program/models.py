"""Small manifests written by hand, and programs of them."""

from collections.abc import Mapping

from planc.model.manifest import Experts, Manifest, ManifestFile, ModuleEntry, ParameterEntry, Plans
from planc.program.lower import lower
from planc.program.program import Program
from planc.resolve.layout import derive_layout
from planc.resolve.resolved import ResolvedPlan
from planc.resolve.resolver import resolve
from planc.syntax.arguments import plan_from_mapping
from planc.syntax.plan import Plan

LAYERS = 3


def weights(**shapes: tuple[int, ...]) -> tuple[ParameterEntry, ...]:
    return tuple(ParameterEntry(name=name, shape=shape, dtype="bfloat16") for name, shape in shapes.items())


def linear(name: str, inputs: int, outputs: int, bias: bool = False, at: tuple[str, ...] | None = None) -> ModuleEntry:
    parameters = weights(weight=(outputs, inputs), **({"bias": (outputs,)} if bias else {}))
    where = (f"0-{LAYERS - 1}",) if at is None else at
    sizes = {"in_features": inputs, "out_features": outputs}
    return ModuleEntry(name=name, at=where, class_name="Linear", sizes=sizes, parameters=parameters)


def inner(name: str, class_name: str = "Block", **fields: object) -> ModuleEntry:
    at = (f"0-{LAYERS - 1}",) if "*" in name else ()
    return ModuleEntry.model_validate({"name": name, "at": at, "class_name": class_name, **fields})


def mixture(tied: bool = False, **changes: object) -> Manifest:
    """A mixture-of-experts model of three layers: 8 experts, 6 heads of 4."""
    layer = "model.layers.*"
    entries = (
        inner("", "ToyForCausalLM"),
        inner("model", "ToyModel"),
        inner(
            "model.embed_tokens",
            "Embedding",
            sizes={"num_embeddings": 50, "embedding_dim": 24},
            parameters=weights(weight=(50, 24)),
        ),
        inner("model.layers", "ModuleList"),
        inner(layer, "ToyLayer"),
        inner(f"{layer}.self_attn", "ToyAttention"),
        linear(f"{layer}.self_attn.q_proj", 24, 24),
        linear(f"{layer}.self_attn.k_proj", 24, 8),
        linear(f"{layer}.self_attn.o_proj", 24, 24, bias=True),
        inner(f"{layer}.self_attn.q_norm", "RMSNorm", parameters=weights(weight=(4,))),
        inner(f"{layer}.mlp", "ToyBlock"),
        inner(f"{layer}.mlp.gate", "ToyRouter", parameters=weights(weight=(8, 24))),
        inner(
            f"{layer}.mlp.experts",
            "ToyExperts",
            sizes={"num_experts": 8},
            experts=Experts(num_experts=8),
            parameters=weights(gate_up_proj=(8, 20, 24), down_proj=(8, 24, 10)),
        ),
        inner("model.norm", "RMSNorm", parameters=weights(weight=(24,))),
        linear("lm_head", 24, 50, at=()),
    )
    file = {
        "name": "toy",
        "class_name": "ToyForCausalLM",
        "base_model_prefix": "model",
        "dtype": "bfloat16",
        "modules": entries,
        "ties": (("lm_head.weight", "model.embed_tokens.weight"),) if tied else (),
        "input_embeddings": "model.embed_tokens",
        "output_embeddings": "lm_head",
        "layers": "model.layers",
        "plans": PLANS,
        **changes,
    }
    return Manifest(ManifestFile.model_validate(file))


PLANS = Plans(
    tp={
        "lm_head": "colwise_gather_output",
        "model.embed_tokens": "embedding_rowwise",
        "model.layers.*.self_attn.q_proj": "colwise",
        "model.layers.*.self_attn.k_proj": "colwise",
        "model.layers.*.self_attn.o_proj": "rowwise",
        "model.layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
        "model.layers.*.mlp.experts.gate_up_proj": "packed_colwise",
        "model.layers.*.mlp.experts.down_proj": "rowwise",
        "model.layers.*.mlp.experts": "moe_tp_experts",
    },
    ep={
        "model.layers.*.mlp.experts": "ep_dispatch_experts",
        "model.layers.*.mlp.experts.gate_up_proj": "grouped_gemm",
        "model.layers.*.mlp.experts.down_proj": "grouped_gemm",
    },
    fsdp={
        "lm_head": "keep_full_weight",
        "model.embed_tokens": "free_full_weight",
        "model.layers.*": "free_full_weight",
        "model.norm": "keep_full_weight",
    },
)


def compiled(manifest: Manifest, plan: Mapping[str, object] | None = None) -> Program:
    """The program of a plan given as a dict, as a plan file holds it."""
    return lower(*resolved(manifest, plan), manifest)


def resolved(manifest: Manifest, plan: Mapping[str, object] | None = None) -> tuple[Plan, ResolvedPlan]:
    parsed, diagnostics = plan_from_mapping(plan or {}, "plan.yaml")
    assert parsed is not None, diagnostics
    return parsed, resolve(parsed, manifest, derive_layout(parsed))


def another() -> Manifest:
    """The same model with one module more."""
    return mixture(modules=(*mixture().file.modules, inner("model.rotary_emb", "ToyRotary")))
