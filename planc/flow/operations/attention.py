"""Attention: every rank's query heads with the key and value heads that belong to them."""

from planc.flow.operations.elementwise import said
from planc.flow.pieces import scaled
from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Step, operation
from planc.flow.types import WHOLE, Fill, PartialSum, Sharded, Type

_HEADS = -3


@operation("scaled_dot_product_attention")
def attention(step: Step) -> Type:
    """`(query, key, value, mask)`, heads on dim -3; with `enable_gqa` each key head serves several query heads."""
    query, key, value = step.inputs[:3]
    kinds = [step.type(item) for item in step.inputs]
    for item, kind in zip(step.inputs, kinds, strict=True):
        if isinstance(kind, PartialSum):
            raise step.mismatch(
                Kind.UNREDUCED, "attention of a partial sum: of the sum it would be something else", item
            )
        if isinstance(kind, Fill):
            raise CantFollowError("attention to a part of a constant")
        if isinstance(kind, Sharded) and kind.dim - len(step.shape(item)) > _HEADS:
            raise step.mismatch(Kind.REDUCED_OVER_SHARD, "attention goes over the whole sequence and whole heads", item)
    lead = kinds[0]
    if not isinstance(lead, Sharded):
        if any(isinstance(kind, Sharded) for kind in kinds):
            raise step.mismatch(Kind.SHARDS_DISAGREE, "all query heads meet a shard of the keys or values", query, key)
        return WHOLE
    for item in (key, value):
        _belongs(step, lead, query, item)
    for mask in step.inputs[3:]:
        _mask(step, lead, query, mask)
    return lead


def _belongs(step: Step, lead: Sharded, query: int, item: int) -> None:
    """Whether a rank's key or value heads are those of its query heads."""
    kind = step.type(item)
    heads, own = step.shape(query)[lead.dim], step.shape(item)[lead.dim]
    if not isinstance(kind, Sharded):
        if own != 1 or lead.dim - len(step.shape(query)) != _HEADS:
            detail = f"a rank has {lead.sizes[0]} of {heads} query heads and all {own} key or value heads"
            raise step.mismatch(Kind.SHARDS_DISAGREE, detail, query, item)
        return
    if kind.dim != lead.dim or tuple(scaled(pieces, heads // own) for pieces in kind.pieces) != lead.pieces:
        detail = f"a rank's query heads ({said(lead)} of {heads}) aren't those of its keys ({said(kind)} of {own})"
        raise step.mismatch(Kind.SHARDS_DISAGREE, detail, query, item)


def _mask(step: Step, lead: Sharded, query: int, mask: int) -> None:
    shape = step.shape(mask)
    from_end = lead.dim - len(step.shape(query))
    kind = step.type(mask)
    if isinstance(kind, Sharded):
        if kind.dim - len(shape) != from_end or kind.pieces != lead.pieces:
            raise step.mismatch(Kind.SHARDS_DISAGREE, "the mask is cut otherwise than the heads", query, mask)
    elif len(shape) >= -from_end and shape[from_end] != 1:
        raise step.mismatch(Kind.SHARDS_DISAGREE, "the mask is whole and the heads are not", query, mask)
