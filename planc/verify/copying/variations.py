"""Ways to complete a config that doesn't run as it stands, each tried in turn."""

from collections.abc import Mapping
from typing import Any

from planc.verify.copying.fields import Path, replaced
from planc.verify.copying.roles import Role, role
from planc.verify.copying.widths import sections_of

# What a field of a role gets where a default config leaves it out; released configs name it.
_FILLINGS = {Role.CHOSEN: 2, Role.EXPERTS: 8, Role.SPAN: 4, Role.WIDTH: 16, Role.GROUPS: 1}
_HEAD_WIDTH = 16
_SECTIONS = (3, 3, 2)
"""Proportions of the rotary sections that multimodal models take where their config names none: [16, 24, 24]."""


_FILLED_ROLES = (
    {Role.CHOSEN},
    {Role.SPAN},
    {Role.HEADS, Role.HEAD_WIDTH},
    {Role.CHOSEN, Role.EXPERTS, Role.GROUPS},
    {Role.CHOSEN, Role.EXPERTS, Role.GROUPS, Role.SPAN, Role.HEADS, Role.HEAD_WIDTH, Role.WIDTH},
)
VARIATIONS = 3 + len(_FILLED_ROLES)


def variation(config: Mapping[str, Any], number: int) -> dict[str, Any] | None:
    """Variation `number` of `config` (already small); the first of `VARIATIONS` is itself. None if it is no other."""
    if number == 0:
        return dict(config)
    if number == 1:
        varied = _with_sections(config)
    elif number == 2:
        varied = _with_sections({**config, "head_dim": config.get("head_dim") or _HEAD_WIDTH})
    else:
        varied = _filled(config, _FILLED_ROLES[number - 3])
    return varied if varied != config else None


def _with_sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """With `mrope_section` cut for the small head, where rotary embeddings take a default made for the large one."""
    small = dict(config)
    for key, value in small.items():
        if key.endswith("_config") and isinstance(value, Mapping):
            small[key] = _with_sections(value)
    rope, width = small.get("rope_parameters"), _head_width(small)
    if isinstance(rope, Mapping) and width and "mrope_section" not in rope:
        share = rope.get("partial_rotary_factor") or 1.0
        total = int(width * share) // 2
        if total >= len(_SECTIONS):
            small["rope_parameters"] = {**rope, "mrope_section": sections_of(total, _SECTIONS)}
    return small


def _head_width(config: Mapping[str, Any]) -> int | None:
    if isinstance(width := config.get("head_dim"), int):
        return width
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None


def _filled(config: Mapping[str, Any], roles: set[Role]) -> dict[str, Any]:
    def new(path: Path, value: Any) -> Any:
        name = str(path[-1])
        if value is not None or (kind := role(name)) not in roles:
            return value
        if kind is Role.HEADS:
            return config.get("num_attention_heads")
        return _head_width(config) if kind is Role.HEAD_WIDTH else _FILLINGS[kind]

    return replaced(config, new)
