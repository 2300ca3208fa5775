"""The rank picture as JSON: one object a rank."""

import json
from dataclasses import asdict

from planc.layouts.picture import Picture


def render_json(picture: Picture) -> str:
    """`{"format_version": 1, "layout": {...}, "ranks": [{"rank": 0, "batch": 0, "experts": [0, 3], ...}]}`."""
    ranks = [asdict(rank) for rank in picture.ranks]
    return json.dumps({"format_version": 1, "layout": picture.layout.to_json(), "ranks": ranks}, indent=2) + "\n"
