"""How many bytes a plan takes off each rank."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from planc.check.rule import CheckContext
from planc.check.sharding import Sharded, not_known
from planc.diagnostics.diagnostic import Coverage, Replicated
from planc.model.manifest import ParameterEntry

ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


@dataclass(frozen=True, slots=True)
class Share:
    """One parameter's bytes in all, and those that the fullest rank holds."""

    name: str
    elements: int
    whole: int
    held: int
    is_sharded: bool
    stage: int | None = None


def coverage(context: CheckContext, shares: Sequence[Share] | None = None) -> Coverage:
    """The bytes of the model, of the fullest rank, and of an even split; what every rank holds whole.

    `shares` are those of `parameter_shares`, where they are at hand. A tied parameter counts once. Blocks are
    `torch.chunk`'s: the first rank's are never smaller than another's. With FSDP every parameter is sharded, rule or
    not, because the model itself is wrapped last. What a custom style does to a parameter may not be known: that counts
    as held whole, and isn't named among what is.
    """
    shares = parameter_shares(context) if shares is None else shares
    total = sum(share.whole for share in shares)
    alone = context.layout.world_size == 1
    kept = () if alone else {share.name for share in shares if not share.is_sharded} - not_known(context)
    whole = sorted((share for share in shares if share.name in kept), key=lambda share: -share.whole)
    return Coverage(
        parameters=sum(share.elements for share in shares),
        sharded=sum(share.elements for share in shares if share.is_sharded),
        bytes_total=total,
        bytes_per_rank=_fullest(shares),
        bytes_even=ceil(total / _shards(context)),
        replicated=tuple(Replicated(share.name, share.whole) for share in whole),
    )


def parameter_shares(context: CheckContext) -> list[Share]:
    """What the fullest rank holds of each parameter, tied ones once."""
    tied = {name for name, _ in context.manifest.file.ties}
    by_name = {found.name: found for found in context.sharded}
    dispatched = _dispatched(context)
    return [
        _share(name, entry, by_name.get(name), module.name in dispatched, context)
        for name, (module, entry) in context.manifest.parameters.items()
        if name not in tied
    ]


def bytes_of(entry: ParameterEntry) -> int:
    """A parameter's size in bytes."""
    return prod(entry.shape) * ELEMENT_BYTES.get(entry.dtype, 1)


def _share(
    name: str, entry: ParameterEntry, found: Sharded | None, is_dispatched: bool, context: CheckContext
) -> Share:
    layout = context.layout
    shape = list(entry.shape)
    if found is not None:
        shape[found.dim] = ceil(shape[found.dim] / layout.size(found.axis))
    # Experts that are dispatched to are wrapped over efsdp, all else over fsdp; both shard dim 0.
    fsdp = layout.efsdp_size if is_dispatched else layout.fsdp_size
    if layout.dp_size > 1 and fsdp > 1 and shape:
        shape[0] = ceil(shape[0] / fsdp)
    whole, elements = bytes_of(entry), prod(entry.shape)
    held = whole // max(elements, 1) * prod(shape)
    stage = _stage(name, context)
    return Share(name, elements, whole, held, prod(shape) < elements or stage is not None, stage)


def _dispatched(context: CheckContext) -> set[str]:
    return {a.target for a in context.resolved.ep.values() if a.style.name == "ep_dispatch_experts"}


def _stage(name: str, context: CheckContext) -> int | None:
    """The pipeline stage of a parameter; None without stages, and for what several stages hold."""
    layers, stages = context.manifest.file.layers, context.layout.pp_size
    if layers is None or stages == 1:
        return None
    if not name.startswith(f"{layers}."):
        return _stage_of_an_end(name, layers.rpartition(".")[0], context)
    count = len(context.names.get(f"{layers}.*", ()))
    per_stage, more = divmod(count, stages)
    number = int(name.removeprefix(f"{layers}.").split(".")[0])
    first = more * (per_stage + 1)
    if number < first:
        return number // (per_stage + 1)
    return more + (number - first) // max(per_stage, 1)


def _stage_of_an_end(name: str, base: str, context: CheckContext) -> int | None:
    """The first stage has the embedding, the last one the norm and the head, and with it an embedding that is tied."""
    if name.startswith(f"{base}.embed_tokens."):
        is_shared = any(name in pair for pair in context.manifest.file.ties)
        return None if is_shared else 0
    return context.layout.pp_size - 1 if name.startswith((f"{base}.norm.", "lm_head.")) else None


def _fullest(shares: Iterable[Share]) -> int:
    by_stage: dict[int | None, int] = defaultdict(int)
    for share in shares:
        by_stage[share.stage] += share.held
    everywhere = by_stage.pop(None, 0)
    return everywhere + max(by_stage.values(), default=0)


def _shards(context: CheckContext) -> int:
    """Over how many ranks an even split would deal the model out: replicas hold copies by intent."""
    return context.layout.world_size // context.layout.dp_replicate_size
