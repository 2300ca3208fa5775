"""Operations of transformers' TP styles, written down by hand: what a program is expected to hold.

Independent of `planc.styles` and `planc.program`, so that the interpreter is tested apart from lowering.
"""

from collections.abc import Iterator, Mapping

from torch import nn

from planc.ir.operations import (
    DivideInput,
    LookupShard,
    Operation,
    RunLocal,
    ShardParameter,
    SumGradient,
    SumOutputGradient,
    TransformInput,
    TransformOutput,
)
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard

R, P, LAST = Replicate(), Partial(), Shard(-1)
COLWISE = {"colwise", "colwise_rep", "colwise_gather_output"}
ROWWISE = {"rowwise", "rowwise_rep", "rowwise_split_input"}


def operations(model: nn.Module, styles: Mapping[str, str]) -> Iterator[Operation]:
    """The operations of resolved TP styles (concrete name to style), in their order."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters(remove_duplicate=False))
    for name, style in styles.items():
        if name in parameters:
            placement = _placement(style, parameters[name].ndim, name.endswith("bias"))
            if placement is not None:
                yield ShardParameter(name, "tp", placement)
        else:
            yield from _module(name, modules[name], style, model)


def _placement(style: str, ndim: int, bias: bool) -> Placement | None:
    if style in COLWISE:
        return Shard(max(ndim - 2, 0) if ndim > 1 else -1)
    if style in ROWWISE:
        return R if bias else LAST
    if style == "packed_colwise":
        return Shard(-1) if ndim == 1 else StridedShard(ndim - 2, 2)
    if style == "packed_rowwise":
        return R if ndim == 1 else StridedShard(-1, 2)
    return {"embedding_rowwise": Shard(0), "embedding_colwise": Shard(1)}.get(style)


def _module(name: str, module: nn.Module, style: str, model: nn.Module) -> Iterator[Operation]:
    if style in COLWISE:
        yield TransformInput(name, "tp", 0, R, R, P)
        yield RunLocal(name)
        if style != "colwise":
            yield TransformOutput(name, "tp", LAST, R, R, module.out_features)
    elif style in ROWWISE:
        if style != "rowwise":
            yield TransformInput(name, "tp", 0, R, LAST, LAST)
        yield RunLocal(name, (f"{name}.bias",) if getattr(module, "bias", None) is not None else ())
        yield TransformOutput(name, "tp", P, R, R)
    elif style == "packed_colwise":
        yield TransformInput(name, "tp", 0, R, R, P)
        yield RunLocal(name)
    elif style == "embedding_rowwise":
        yield RunLocal(name)
        yield LookupShard(name, "tp", module.num_embeddings)
        yield TransformOutput(name, "tp", P, R, R)
    elif style == "embedding_colwise":
        yield RunLocal(name)
        yield TransformOutput(name, "tp", LAST, R, R, module.embedding_dim)
    elif style == "moe_tp_experts":
        yield TransformInput(name, "tp", 0, R, R, P)
        yield TransformInput(name, "tp", 2, R, R, P)
        yield RunLocal(name)
        yield TransformOutput(name, "tp", P, R, R)
    elif style == "all_reduce":
        yield TransformOutput(name, "tp", P, R, R)
    elif style == "replicated_with_grad_allreduce":
        for parameter, _ in module.named_parameters(recurse=False):
            yield SumGradient(f"{name}.{parameter}", "tp")
    elif style == "mla_kv_a_proj":
        yield SumOutputGradient(name, "tp", model.config.get_text_config().qk_rope_head_dim)
    elif style == "local_params":
        yield RunLocal(name)
    elif style == "moe_identity_expert":
        yield DivideInput(name, "tp")
    elif style not in {"replicate", "packed_rowwise"}:
        raise NotImplementedError(style)
