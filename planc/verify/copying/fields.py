"""Configs as nested data: walk their integers, and replace them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# A path into a config's dict: ("text_config", "num_attention_heads"), with list positions as integers.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """An integer of a config. `name` is the innermost key, also for the items of a list."""

    path: Path
    value: int

    @property
    def name(self) -> str:
        return next(str(part) for part in reversed(self.path) if isinstance(part, str))


def fields(config: Mapping[str, Any], path: Path = ()) -> Iterator[Field]:
    """Every integer (no booleans) of `config`, those of nested configs and lists included."""
    for key, value in config.items():
        if key not in ("id2label", "label2id"):
            yield from _of_value(value, (*path, key))


def _of_value(value: Any, path: Path) -> Iterator[Field]:
    if isinstance(value, Mapping):
        yield from fields(value, path)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _of_value(item, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield Field(path, value)


def replaced(config: Mapping[str, Any], new: Callable[[Path, Any], Any]) -> dict[str, Any]:
    """A deep copy of `config`; `new(path, value)` gives each leaf's value."""
    return {key: _replace(value, (key,), new) for key, value in config.items()}


def _replace(value: Any, path: Path, new: Callable[[Path, Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace(item, (*path, key), new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, (*path, index), new) for index, item in enumerate(value)]
    return new(path, value)
