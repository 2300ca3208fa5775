"""What an integer of a config counts, by the words of its name.

Config fields of transformers 5.24.0 follow one vocabulary (`num_key_value_heads`, `moe_intermediate_size`,
`kv_lora_rank`), whatever the model. A wrong guess does no harm: a copy that doesn't build or run is thrown away, and
the next candidate is tried.
"""

import re
from enum import Enum, auto


class Role(Enum):
    """What a field counts."""

    HEADS = auto()
    """Attention or state-space heads."""
    HEAD_WIDTH = auto()
    """Features of a head, or of its rotary part."""
    WIDTH = auto()
    """Features: hidden and intermediate sizes, ranks, states."""
    VOCABULARY = auto()
    EXPERTS = auto()
    CHOSEN = auto()
    """Experts that a token is sent to."""
    GROUPS = auto()
    """Groups of experts, of which the router chooses some."""
    SPAN = auto()
    """Positions that belong together: windows, chunks, blocks, selected keys."""
    TOKEN = auto()
    """The id of a special token."""
    OTHER = auto()


_TOKEN = re.compile(r"(token_id|token_index|(bos|eos|pad|boi|eoi)_(id|token_id|index))$")
_FIXED = {"kernel", "patch", "image", "position", "positions", "pooling", "conv", "scalar", "temporal", "spatial"}
_WIDTHS = {"size", "sizes", "dim", "dims", "rank", "lowrank", "embd", "channel", "channels", "state", "ssm", "rel"}


def role(name: str) -> Role:
    """The role of the field called `name`."""
    words = set(name.lower().strip("_").split("_"))
    if _TOKEN.search(name):
        return Role.TOKEN
    if "vocab" in words or "codebook" in words:
        return Role.VOCABULARY
    if words & {"expert", "experts"}:
        return _of_experts(words)
    if words & {"group", "groups"}:
        return Role.GROUPS if "topk" in words or words == {"n", "group"} else Role.OTHER
    if (
        (words & {"window", "chunk", "block", "blocks"} and not words & {"n", "num"})
        or {"topk", "index"} <= words
        or "kpool" in words
    ):
        return Role.SPAN
    if words & {"topk", "k"}:
        return Role.CHOSEN
    if "heads" in words or {"n", "head"} <= words:
        return Role.HEADS
    if words & {"head", "rotary"} or "section" in words:
        return Role.HEAD_WIDTH
    return Role.WIDTH if words & _WIDTHS and not words & _FIXED else Role.OTHER


def _of_experts(words: set[str]) -> Role:
    if words & _WIDTHS:
        return Role.WIDTH
    if words & {"group", "groups"}:
        return Role.GROUPS
    if "per" in words:
        return Role.CHOSEN
    counts = words & {"n", "num"} and not words & {"shared", "layer", "layers"}
    return Role.EXPERTS if counts else Role.OTHER
