"""Every style by name: planc's own, and those that installed packages bring or the user registers.

Custom styles and EP implementations are those that anybody registered with transformers itself (`ALL_PARALLEL_STYLES`,
`EPImplementationInterface`) in this process, those of the entry-point groups `planc.styles` and
`planc.ep_implementations` (name = class, object, or a module that registers the name with transformers), and planc's
own `register`, which takes subclasses of `Style`, too. Listing names loads no foreign code; only `style_object` and
`ep_implementation_class`, which a runtime calls, do.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from planc.styles import colwise, embedding, expert_parallel, fsdp, packed, reduction, replicated, rowwise, theirs
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
SHARE_A_BATCH = ("all_reduce", "deepgemm_megamoe")

_registered_styles: dict[str, type[Any]] = {}
_registered_ep_implementations: dict[str, type[Any]] = {}
# Says which style of planc's does the same as an object to modules of a class (`Linear`), by running both; None where
# none does. A later stage puts it here: it needs torch.
watcher: Callable[[Any, str], str | None] | None = None
_watched: dict[tuple[int, str, str], tuple[Any, str | None]] = {}


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
    if plan != "fsdp" and (style := _registered_there(name) or STYLES.get(name) or _custom(name)):
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
    custom = (*_their_ep_implementations(), *_registered_ep_implementations, *_entry_points(EP_GROUP))
    return tuple(dict.fromkeys((*EP_IMPLEMENTATIONS, *custom)))


def style_object(name: str) -> Any:
    """What a custom style's name stands for, an object or a class; loads its package. Raises KeyError."""
    if name in (found := _their_styles()):
        return found[name]
    return _registered_styles[name] if name in _registered_styles else _load(STYLE_GROUP, name, _their_styles)


def is_custom_ep_implementation(name: str) -> bool:
    """Whether `name` is somebody's own implementation, also where it takes the place of one of transformers'."""
    if name in EP_IMPLEMENTATIONS:
        return name in _their_ep_implementations()
    return name in ep_implementation_names()


def ep_implementation_class(name: str) -> type[Any]:
    """The foreign class behind a custom EP implementation; loads its package. Raises KeyError."""
    if name in (found := _their_ep_implementations()):
        return found[name]
    if name in _registered_ep_implementations:
        return _registered_ep_implementations[name]
    cls: type[Any] = _load(EP_GROUP, name, _their_ep_implementations)
    return cls


def needs_shared_batch(name: str) -> bool:
    """Whether an EP implementation needs every rank of a group to hold one batch, as its class says if it is loaded."""
    cls = _their_ep_implementations().get(name) or _registered_ep_implementations.get(name)
    return name in SHARE_A_BATCH if cls is None else bool(getattr(cls, "needs_shared_batch", False))


def _their_styles() -> Mapping[str, Any]:
    """What users registered with transformers, also in the place of a style of its own."""
    return {name: style for name, style in theirs.styles().items() if not theirs.is_their_own(name, style)}


def _their_ep_implementations() -> Mapping[str, type[Any]]:
    found = theirs.ep_implementations()
    return {n: cls for n, cls in found.items() if n not in EP_IMPLEMENTATIONS or not theirs.is_their_own_class(cls)}


def _custom_names() -> tuple[str, ...]:
    own = (name for name in _their_styles() if name not in STYLES)
    return tuple(dict.fromkeys((*own, *_registered_styles, *_entry_points(STYLE_GROUP))))


def _registered_there(name: str) -> type[Style] | None:
    style = theirs.styles().get(name)
    if style is None or theirs.is_their_own(name, style):
        return None
    return _foreign(name, style)


def _custom(name: str) -> type[Style] | None:
    cls = _registered_styles.get(name)
    if cls is not None and issubclass(cls, Style):
        return cls
    if cls is None and name not in _entry_points(STYLE_GROUP):
        return None
    return _foreign(name)


def _foreign(name: str, style: Any = None) -> type[Style]:
    """The class that stands for a custom style; `style` is the object, where it may be watched."""

    def like(cls: type[Style], values: Mapping[str, int | str], kind: str) -> Style | None:
        return None if style is None else _like(style, values, kind)

    return type(f"Foreign_{name}", (ForeignStyle,), {"name": name, "like": classmethod(like)})


def _like(style: Any, values: Mapping[str, int | str], kind: str) -> Style | None:
    """The style of planc's that does what `style` does to modules of class `kind`, watched once."""
    if watcher is None:
        return None
    key = id(style), repr(sorted(values.items())), kind
    if key not in _watched or _watched[key][0] is not style:
        try:
            _watched[key] = style, watcher(type(style)(**values) if values else style, kind)
        except Exception:  # the constructor is somebody else's
            _watched[key] = style, None
    name = _watched[key][1]
    return STYLES[name]() if name is not None else None


@cache
def _entry_points(group: str) -> dict[str, Any]:
    # Reading the metadata of all installed packages takes longer than a warm check: only for names planc doesn't know.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def _load(group: str, name: str, registered: Callable[[], Mapping[str, Any]]) -> Any:
    """What an entry point names; where that is a module, what it registered with transformers."""
    found = _entry_points(group)[name].load()
    return registered()[name] if isinstance(found, ModuleType) else found
