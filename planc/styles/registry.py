"""Every style by name: planc's own, and those that installed packages bring or the user registers.

Custom styles come from the entry-point group `planc.styles` (name = class), custom EP implementations from
`planc.ep_implementations`, or from Python: `register("my_style", MyStyle)` in a module that the user names on the
command line. What is registered only with transformers' own `ParallelInterface` can't be seen here, because that
would need torch; register it here too. Listing names loads no foreign code; only `style_class` and
`ep_implementation_class`, which a runtime calls, do.
"""

from functools import cache
from typing import Any

from planc.styles import colwise, embedding, expert_parallel, fsdp, packed, reduction, replicated, rowwise
from planc.styles.custom import ForeignStyle
from planc.styles.style import Style
from planc.syntax.plan import PlanKind, StyleUse

STYLE_GROUP = "planc.styles"
EP_GROUP = "planc.ep_implementations"


def _by_name(*classes: type[Style]) -> dict[str, type[Style]]:
    return {cls.name: cls for cls in classes}


# Styles of TP and EP plans.
STYLES = _by_name(
    colwise.Colwise,
    colwise.ColwiseGatherOutput,
    colwise.ColwiseRep,
    rowwise.Rowwise,
    rowwise.RowwiseSplitInput,
    rowwise.RowwiseRep,
    embedding.EmbeddingRowwise,
    embedding.EmbeddingColwise,
    packed.PackedColwise,
    packed.PackedRowwise,
    replicated.SequenceParallel,
    replicated.ReplicatedWithGradAllReduce,
    replicated.ReplicateStyle,
    reduction.MlaKvAProj,
    reduction.AllReduce,
    reduction.MoeTpExperts,
    reduction.MoeIdentityExpert,
    reduction.LocalParams,
    expert_parallel.GroupedGemm,
    expert_parallel.EpDispatchExperts,
)
FSDP_STYLES = _by_name(fsdp.FreeFullWeight, fsdp.KeepFullWeight)
# Old names that have no class any more, with what to do instead.
REMOVED = {
    "ep_router": "drop the router's rule; `ep_implementation: all_reduce` masks off-rank experts",
    "local": "on experts whose parameters have rules write `moe_tp_experts`; elsewhere leave the rule out",
    "gather": "leave the rule out: `rowwise` on the last projection sums its output itself",
    "local_colwise": "write `colwise`: every style works on local tensors now",
    "local_rowwise": "write `rowwise`: every style works on local tensors now",
    "local_packed_rowwise": "write `packed_rowwise`: every style works on local tensors now",
}
# Of these, those that live on under another name. Source: Llama 4's plan in transformers 4.52 and in 5.24.0
# (`models/llama4/configuration_llama4.py`).
REMOVED_NAMES = {
    "local_colwise": "colwise",
    "local_rowwise": "rowwise",
    "local_packed_rowwise": "packed_rowwise",
}
EP_IMPLEMENTATIONS = ("auto", "all_to_all", "all_reduce", "deepgemm_megamoe")

_registered_styles: dict[str, type[Any]] = {}
_registered_ep_implementations: dict[str, type[Any]] = {}


def register(name: str, cls: type[Any]) -> None:
    """Register a custom style: a class with transformers' four methods, or a subclass of planc's `Style`.

    Raises ValueError where `name` is one of planc's own.
    """
    if name in STYLES or name in FSDP_STYLES:
        raise ValueError(f"`{name}` is a style of planc's own")
    _registered_styles[name] = cls


def register_ep_implementation(name: str, cls: type[Any]) -> None:
    """Register an EP implementation: a class built with `(experts, ep_mesh, tp_mesh)` and called with
    `(hidden_states, top_k_index, top_k_weights)`. Raises ValueError where `name` is one of transformers' own.
    """
    if name in EP_IMPLEMENTATIONS:
        raise ValueError(f"`{name}` is an implementation of transformers' own")
    _registered_ep_implementations[name] = cls


def get(name: str, plan: PlanKind | None = None) -> type[Style] | None:
    """The style class called `name`, in `plan` where one is given; None where there is none."""
    if plan != "fsdp" and (style := STYLES.get(name) or _custom(name)):
        return style
    return FSDP_STYLES.get(name) if plan in (None, "fsdp") else None


def create(use: StyleUse, plan: PlanKind | None = None) -> Style | None:
    """One use of a style with its arguments; None for an unknown name or arguments that it doesn't take."""
    cls = get(use.name, plan)
    if cls is None or cls.argument_objection(dict(use.arguments)) is not None:
        return None
    return cls(**dict(use.arguments))


def names(plan: PlanKind) -> tuple[str, ...]:
    """Every name that may stand in `plan`, custom ones last."""
    if plan == "fsdp":
        return tuple(FSDP_STYLES)
    return (*(name for name, cls in STYLES.items() if plan in cls.plans), *_custom_names())


def ep_implementation_names() -> tuple[str, ...]:
    """Every name that `ep_implementation` may take, custom ones last."""
    return tuple(dict.fromkeys((*EP_IMPLEMENTATIONS, *_registered_ep_implementations, *_entry_points(EP_GROUP))))


def style_class(name: str) -> type[Any]:
    """The foreign class behind a custom style; loads its package. Raises KeyError."""
    return _registered_styles[name] if name in _registered_styles else _load(STYLE_GROUP, name)


def ep_implementation_class(name: str) -> type[Any]:
    """The foreign class behind a custom EP implementation; loads its package. Raises KeyError."""
    if name in _registered_ep_implementations:
        return _registered_ep_implementations[name]
    return _load(EP_GROUP, name)


def _custom_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*_registered_styles, *_entry_points(STYLE_GROUP))))


def _custom(name: str) -> type[Style] | None:
    cls = _registered_styles.get(name)
    if cls is not None and issubclass(cls, Style):
        return cls
    if cls is None and name not in _entry_points(STYLE_GROUP):
        return None
    return type(f"Foreign_{name}", (ForeignStyle,), {"name": name})


@cache
def _entry_points(group: str) -> dict[str, Any]:
    # Reading the metadata of all installed packages takes longer than a warm check: only for names planc doesn't know.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def _load(group: str, name: str) -> type[Any]:
    cls = _entry_points(group)[name].load()
    if not isinstance(cls, type):
        raise KeyError(name)
    return cls
