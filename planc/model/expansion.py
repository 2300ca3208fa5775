"""From the grouped module entries of a manifest file to concrete names, in the order of `named_modules()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from planc.model import ranges
from planc.model.errors import ModelError

if TYPE_CHECKING:
    from planc.model.manifest import ModuleEntry

# The largest released models have some 60,000 modules (every expert a module of its own). More is a mistake or malice.
MOST_MODULES = 200_000
MOST_PARAMETERS = 1_000_000


def expand(entries: Sequence[ModuleEntry]) -> Iterator[tuple[str, ModuleEntry]]:
    """Concrete names with their entries, parents before children, siblings in order.

    Siblings are ordered by `children` of their parent's entry, where it has them; else numbers ascend, and names
    follow the order of the entries. Raises ModelError where entries overlap, numbers don't fit the name, or there are
    too many of them.
    """
    by_name: dict[str, ModuleEntry] = {}
    modules = parameters = 0
    for entry in entries:
        products = _products(entry)
        count = sum(map(ranges.count, products)) if products else 1
        modules += count
        parameters += count * len(entry.parameters)
        if modules > MOST_MODULES or parameters > MOST_PARAMETERS:
            raise ModelError(
                f"with `{entry.name}` the manifest lists {modules:,} modules and {parameters:,} parameters; "
                f"at most {MOST_MODULES:,} and {MOST_PARAMETERS:,} are read"
            )
        for name in _names(entry, products):
            if name in by_name:
                raise ModelError(f"the manifest lists the module `{name}` twice")
            by_name[name] = entry
    children = _children(by_name)
    stack = [""]
    while stack:
        name = stack.pop()
        if name in by_name:
            yield name, by_name[name]
        if name in children:
            siblings = order(list(children[name]), by_name[name].children if name in by_name else ())
            prefix = f"{name}." if name else ""
            stack.extend(prefix + sibling for sibling in reversed(siblings))


def order(siblings: list[str], explicit: Sequence[str] = ()) -> list[str]:
    """Names of one module's children, given in the order of the entries, as `named_children()` lists them."""
    if explicit:
        place = {name: index for index, name in enumerate(explicit)}
        return sorted(siblings, key=lambda name: place.get(name, len(place)))
    if all(name.isdecimal() for name in siblings):
        return sorted(siblings, key=int)
    return siblings


def _products(entry: ModuleEntry) -> list[ranges.Ranges]:
    stars = entry.name.split(".").count("*")
    if bool(stars) != bool(entry.at):
        raise ModelError(f"`{entry.name}` has {stars} layer numbers, but {len(entry.at)} ranges of them")
    try:
        products = [ranges.parse(item) for item in entry.at]
    except ValueError as error:
        raise ModelError(f"layer numbers of `{entry.name}`: {error}") from None
    for item, parsed in zip(entry.at, products, strict=True):
        if len(parsed) != stars:
            raise ModelError(f"`{entry.name}` has {stars} layer numbers, `{item}` has {len(parsed)}")
    return products


def _names(entry: ModuleEntry, products: list[ranges.Ranges]) -> Iterator[str]:
    if not products:
        yield entry.name
        return
    template = ".".join("%d" if segment == "*" else segment.replace("%", "%%") for segment in entry.name.split("."))
    for item in products:
        for numbers in ranges.expand(item):
            yield template % numbers


def _children(by_name: dict[str, ModuleEntry]) -> dict[str, dict[str, None]]:
    """Children of each module in the order of `by_name`; parents that have no entry of their own are there too."""
    children: dict[str, dict[str, None]] = {}
    for name in by_name:
        while name:
            parent, _, child = name.rpartition(".")
            siblings = children.setdefault(parent, {})
            if child in siblings:
                break
            siblings[child] = None
            name = parent
    return children
