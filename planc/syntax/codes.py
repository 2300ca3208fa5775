"""The kinds of syntax errors. Each docstring is what `planc explain` prints."""

from typing import ClassVar

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Severity


class _Defined:
    code: ClassVar[Code]


@define("PL001", "not-yaml", Severity.ERROR)
class NotYaml(_Defined):
    """A plan file that isn't YAML."""


@define("PL002", "unreadable-plan", Severity.ERROR)
class UnreadablePlan(_Defined):
    """A plan file that can't be read."""


@define("PL003", "empty-plan", Severity.ERROR)
class EmptyPlan(_Defined):
    """A plan file without content."""


@define("PL004", "several-documents", Severity.ERROR)
class SeveralDocuments(_Defined):
    """A plan file with several YAML documents."""


@define("PL005", "nested-too-deeply", Severity.ERROR)
class NestedTooDeeply(_Defined):
    """A plan file nested without end."""


@define("PL006", "unsupported-yaml", Severity.ERROR)
class UnsupportedYaml(_Defined):
    """Tags, directives, merge keys, and aliases of whole mappings."""


@define("PL007", "duplicate-key", Severity.ERROR)
class DuplicateKey(_Defined):
    """The same key twice in one mapping."""


@define("PL008", "unknown-field", Severity.ERROR)
class UnknownField(_Defined):
    """A field that plans don't have."""


@define("PL009", "wrong-type", Severity.ERROR)
class WrongType(_Defined):
    """A value of the wrong type."""


@define("PL010", "illegal-value", Severity.ERROR)
class IllegalValue(_Defined):
    """A value of the right type that the field doesn't take."""


@define("PL011", "extends-cycle", Severity.ERROR)
class ExtendsCycle(_Defined):
    """Plans that extend each other."""


@define("PL012", "extends-unreadable", Severity.ERROR)
class ExtendsUnreadable(_Defined):
    """An `extends` that names no readable plan file."""


@define("PL021", "invalid-key", Severity.ERROR)
class InvalidKey(_Defined):
    """A rule's key that isn't a dotted name."""


@define("PL022", "invalid-index-set", Severity.ERROR)
class InvalidIndexSet(_Defined):
    """An index set that is empty, reversed, or not of plain numbers."""


@define("PL023", "invalid-alternation", Severity.ERROR)
class InvalidAlternation(_Defined):
    """An alternation that is empty, too large, or of numbers."""


@define("PL031", "invalid-style", Severity.ERROR)
class InvalidStyle(_Defined):
    """A rule's style that isn't a name with optional arguments."""


@define("PL041", "invalid-requirement", Severity.ERROR)
class InvalidRequirement(_Defined):
    """A requirement that isn't an expression."""
