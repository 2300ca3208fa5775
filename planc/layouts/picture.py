"""The rank picture: which batch, slices and experts each rank of a layout holds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from planc.layouts.layout import DENSE_AXES, EXPERT_AXES, Layout


@dataclass(frozen=True, slots=True)
class Cell:
    """`text` for `count` consecutive ranks."""

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture. Cells of `spanning` rows are drawn as one box over their ranks."""

    name: str
    cells: tuple[Cell, ...]
    spanning: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank in both views of the mesh, with the batch it sees and the experts it holds (first, last).

    `tokens` is the share of its batch that it sends to experts in training, as (part from 0, parts); None where the
    implementation is a custom one, or nothing is sent.
    """

    rank: int
    node: int | None
    pp: int
    dp_replicate: int
    fsdp: int
    tp: int
    efsdp: int
    ep: int
    batch: int
    experts: tuple[int, int] | None
    tokens: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All ranks of `layout`; `rows` are what renderers draw."""

    layout: Layout
    ranks: tuple[Rank, ...]
    rows: tuple[Row, ...]


def picture(layout: Layout, num_experts: int | None = None, gpus_per_node: int | None = None) -> Picture:
    """Draw `layout` for a model of `num_experts` routed experts (None: a dense model).

    The layout must be legal; `num_experts` that `ep_size` doesn't divide raises `ValueError`.
    Source of the meshes: `TransformersDeviceMesh`, `transformers/distributed/utils.py` 5.24.0: the last axis of
    `(pp, dp_replicate, fsdp, tp)` and of `(pp, dp_replicate, efsdp, ep)` is the fastest.
    """
    if num_experts is not None and num_experts % layout.ep_size:
        raise ValueError(f"{num_experts} experts don't divide by ep_size={layout.ep_size}")
    ranks = tuple(_rank(rank, layout, num_experts, gpus_per_node) for rank in range(layout.world_size))
    return Picture(layout, ranks, tuple(_rows(layout, ranks)))


def _rank(rank: int, layout: Layout, num_experts: int | None, gpus_per_node: int | None) -> Rank:
    dense, expert = layout.coordinates(rank, DENSE_AXES), layout.coordinates(rank, EXPERT_AXES)
    experts = None
    if num_experts is not None:
        held = num_experts // layout.ep_size
        experts = (expert["ep"] * held, expert["ep"] * held + held - 1)
    return Rank(
        rank=rank,
        node=rank // gpus_per_node if gpus_per_node else None,
        pp=dense["pp"],
        dp_replicate=dense["dp_replicate"],
        fsdp=dense["fsdp"],
        tp=dense["tp"],
        efsdp=expert["efsdp"],
        ep=expert["ep"],
        batch=dense["dp_replicate"] * layout.fsdp_size + dense["fsdp"],
        experts=experts,
        tokens=_tokens(layout, dense["tp"], expert["ep"]),
    )


def _tokens(layout: Layout, tp: int, ep: int) -> tuple[int, int] | None:
    """The part of its batch that a rank takes: its chunk of the rows, as `torch.chunk` over the ranks that share them.

    Source: `AllToAllEP` (`auto` in training), `AllReduceEP` and `MegaMoeEP`, transformers 5.24.0.
    """
    parts = {"auto": (tp, layout.tp_size), "all_to_all": (tp, layout.tp_size), "all_reduce": (0, 1)}
    parts["deepgemm_megamoe"] = (ep, layout.ep_size)
    return parts.get(layout.ep_implementation) if layout.ep_size > 1 else None


def _rows(layout: Layout, ranks: tuple[Rank, ...]) -> Iterator[Row]:
    if ranks[0].node is not None:
        yield _spanning("node", ranks, lambda r: f"node {r.node}")
    yield _single("rank", ranks, lambda r: str(r.rank))
    if layout.pp_size > 1:
        yield _spanning("stage", ranks, lambda r: f"stage {r.pp}", note=f"pp_size={layout.pp_size}")
    if layout.dp_replicate_size > 1:
        note = f"dp_replicate_size={layout.dp_replicate_size}"
        yield _spanning("replica", ranks, lambda r: f"replica {r.dp_replicate}", note=note)
    note = f"one batch per {_group(layout.tp_size, 'rank', 'TP pair', 'TP group')}"
    yield _spanning("batch", ranks, lambda r: f"B{r.batch}", lambda r: (r.pp, r.batch), note)
    yield _single("tp", ranks, lambda r: str(r.tp), note=f"tp_size={layout.tp_size}")
    if layout.fsdp_size > 1:
        yield _spanning("fsdp", ranks, lambda r: str(r.fsdp), lambda r: r.batch, f"fsdp_size={layout.fsdp_size}")
    if layout.ep_size > 1:
        yield _single(f"ep_size={layout.ep_size}", ranks, _experts, note=_expert_note(layout))
    if layout.ep_size > 1 and layout.efsdp_size > 1:
        note = f"efsdp_size={layout.efsdp_size}"
        yield _spanning("efsdp", ranks, lambda r: f"copy {r.efsdp}", lambda r: (r.pp, r.dp_replicate, r.efsdp), note)
    if any(rank.tokens is not None and rank.tokens[1] > 1 for rank in ranks):
        yield _single("tokens", ranks, _share, note=_share_note(layout))


def _share(rank: Rank) -> str:
    return f"{rank.tokens[0] + 1}/{rank.tokens[1]}" if rank.tokens is not None else "?"


def _share_note(layout: Layout) -> str:
    masked = layout.ep_implementation == "auto" and layout.ep_size == layout.tp_size
    return "share of the batch sent to experts" + (
        " in training; without gradients each rank takes all" if masked else ""
    )


def _experts(rank: Rank) -> str:
    if rank.experts is None:
        return str(rank.ep)
    first, last = rank.experts
    return f"E{first}" if first == last else f"E{first}E{last}" if last == first + 1 else f"E{first}-{last}"


def _expert_note(layout: Layout) -> str:
    tp_groups = layout.ep_size // layout.tp_size
    group = "all ranks" if layout.ep_size == layout.world_size else _group(tp_groups, "a TP group", "two TP groups", "")
    return f"group = {group or f'{tp_groups} TP groups'}, efsdp_size={layout.efsdp_size}"


def _group(size: int, one: str, two: str, more: str) -> str:
    return one if size == 1 else two if size == 2 else more


def _single(name: str, ranks: tuple[Rank, ...], text: Callable[[Rank], str], note: str = "") -> Row:
    return Row(name, tuple(Cell(text(rank), 1) for rank in ranks), note=note)


def _spanning(
    name: str,
    ranks: tuple[Rank, ...],
    text: Callable[[Rank], str],
    key: Callable[[Rank], object] | None = None,
    note: str = "",
) -> Row:
    groups = [list(group) for _, group in groupby(ranks, key or text)]
    return Row(name, tuple(Cell(text(group[0]), len(group)) for group in groups), spanning=True, note=note)
