"""Which concrete names a key names."""

from collections import defaultdict
from functools import cached_property

from planc.model.manifest import Manifest
from planc.syntax.matching import generic_name, key_matches
from planc.syntax.plan import Key


class NameIndex:
    """The names of a model's modules and parameters, by the name with wildcards that transformers looks up."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._found: dict[str, tuple[str, ...]] = {}

    @cached_property
    def by_generic_name(self) -> dict[str, list[str]]:
        """Concrete names grouped by generic name, modules before parameters, each in the model's order."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in (*self._manifest.modules, *self._manifest.parameters):
            groups[generic_name(name)].append(name)
        return groups

    def names(self, key: Key) -> tuple[str, ...]:
        """Every concrete name that `key` names.

        A key that transformers could hold names what transformers would look up by it; index sets, single layers and
        alternation are planc's own and are matched segment by segment.
        """
        if key.text not in self._found:
            self._found[key.text] = self._search(key)
        return self._found[key.text]

    def _search(self, key: Key) -> tuple[str, ...]:
        groups = self.by_generic_name
        if key.text in groups:
            return tuple(groups[key.text])
        if key.is_portable:
            return ()
        depth = len(key.segments)
        return tuple(
            name
            for generic, names in groups.items()
            if generic.count(".") + 1 == depth
            for name in names
            if key_matches(key, name)
        )
