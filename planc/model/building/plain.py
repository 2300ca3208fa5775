"""Values as JSON knows them."""

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """`value` with tuples and sets as lists, and whatever JSON can't say (a dtype, infinity) as its text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
        case _:
            return str(value).removeprefix("torch.")
