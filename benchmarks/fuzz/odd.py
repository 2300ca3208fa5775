"""Odd values, and the places in a JSON document where one can stand."""

from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**63,
    10**18,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "\0",
    "\ud800",
    "::error::\n\x1b[31m",
    "PreTrainedModel",
    "9" * 5_000,
    [],
    [[]],
    [None, 3, "x"],
    {},
    {"": None},
    {"model.layers.*.self_attn.q_proj": 3, "9" * 5_000: "colwise"},
)


def places(document: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value inside `document`, outer ones first."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A copy of `document` with `value` at `path`, which it need not have yet."""
    if not path:
        return value
    first, *others = path
    copy = dict(document) if isinstance(document, dict) else list(document)
    inner = copy[first] if isinstance(first, int) or first in copy else {}
    copy[first] = replaced(inner, tuple(others), value)
    return copy


def without(document: Any, path: Path) -> Any:
    """A copy of `document` that lacks what stands at `path`."""
    first, *others = path
    copy = dict(document) if isinstance(document, dict) else list(document)
    if others:
        copy[first] = without(copy[first], tuple(others))
    else:
        del copy[first]
    return copy
