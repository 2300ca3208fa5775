"""What is registered with transformers itself: `ALL_PARALLEL_STYLES` and `EPImplementationInterface`.

Nothing is imported here. Whoever registers a style there has imported transformers, and where nobody has, nothing is
registered: a check without such code stays without torch.
"""

import sys
from collections.abc import Mapping
from typing import Any

_PACKAGE = "transformers.distributed."
_STYLES = "transformers.distributed.parallel_utils"
_EXPERTS = "transformers.distributed.expert_parallel"


def styles() -> Mapping[str, Any]:
    """The objects in `ALL_PARALLEL_STYLES`, transformers' own among them, by name; none where it isn't loaded."""
    module = sys.modules.get(_STYLES)
    found: Mapping[str, Any] = getattr(module, "ALL_PARALLEL_STYLES", {})
    return found


def ep_implementations() -> Mapping[str, Any]:
    """The classes in `EPImplementationInterface`, transformers' own among them, by name; none where it isn't loaded."""
    interface = getattr(sys.modules.get(_EXPERTS), "EPImplementationInterface", None)
    found: Mapping[str, Any] = interface() if interface is not None else {}
    return found


def is_their_own(name: str, style: Any) -> bool:
    """Whether `style` is what transformers 5.24.0 registers as `name`; a user may have put another in its place."""
    judged = _judged.get(name)
    if judged is None or judged[0] is not style:
        kind = type(style)
        fields = {key: repr(value) for key, value in getattr(style, "__dict__", {}).items()}
        is_own = kind.__module__.startswith(_PACKAGE) and (kind.__name__, fields) == _FIELDS.get(name)
        judged = _judged[name] = style, is_own
    return judged[1]


def is_their_own_class(cls: Any) -> bool:
    """Whether an implementation of expert parallelism is one of transformers' classes."""
    return str(getattr(cls, "__module__", "")).startswith(_PACKAGE)


# By name, the last object that was looked at: a plan asks for the same few styles again and again.
_judged: dict[str, tuple[Any, bool]] = {}


_R, _LAST = "Replicate()", "Shard(dim=-1)"
_LOCAL = {"use_local_output": "True"}
_PACKED = {"split_factor": "2"}
# What transformers 5.24.0 registers (`distributed/tensor_parallel.py`, `distributed/expert_parallel.py`): the class and
# the fields of each object.
_FIELDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "embedding_rowwise": ("EmbeddingParallel", {"shard_dim": "0", **_LOCAL}),
    "embedding_colwise": ("EmbeddingParallel", {"shard_dim": "1", **_LOCAL}),
    "colwise": ("ColwiseParallel", {"input_layouts": _R, "output_layouts": _LAST, **_LOCAL}),
    "colwise_gather_output": ("ColwiseParallel", {"input_layouts": _R, "output_layouts": _R, **_LOCAL}),
    "colwise_rep": ("ColwiseParallel", {"input_layouts": _R, "output_layouts": _R, **_LOCAL}),
    "rowwise": ("RowwiseParallel", {"input_layouts": _LAST, "output_layouts": _R, **_LOCAL}),
    "rowwise_split_input": ("RowwiseParallel", {"input_layouts": _R, "output_layouts": _R, **_LOCAL}),
    "rowwise_rep": ("RowwiseParallel", {"input_layouts": _R, "output_layouts": _R, **_LOCAL}),
    "packed_colwise": (
        "PackedColwiseParallel",
        {"input_layouts": f"({_R},)", **_LOCAL, **_PACKED, "input_grad_placements": "[Partial(sum)]"},
    ),
    "packed_rowwise": ("PackedRowwiseParallel", _PACKED),
    "sequence_parallel": ("SequenceParallel", {"sequence_dim": "1", **_LOCAL}),
    "replicated_with_grad_allreduce": ("ReplicatedWithGradAllReduce", {}),
    "mla_kv_a_proj": ("MlaKvAProjParallel", {}),
    "all_reduce": ("AllReduceParallel", {}),
    "moe_tp_experts": ("MoeExpertsParallel", {}),
    "moe_identity_expert": ("MoeIdentityParallel", {}),
    "local_params": ("LocalParamsParallel", {}),
    "replicate": ("TensorParallelLayer", {}),
    "grouped_gemm": ("MoEParamShard", {"placement": "Shard(dim=0)", "shards_expert_dim": "True"}),
    "ep_dispatch_experts": ("EpDispatchExpertsParallel", {}),
}
