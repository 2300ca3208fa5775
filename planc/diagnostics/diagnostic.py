"""What planc has to say: findings with positions, numbers and fixes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planc.diagnostics.span import Span

# File name (or virtual name) to its whole text; the renderer quotes from it.
Sources = Mapping[str, str]


class Severity(StrEnum):
    """How much a finding matters. `UNKNOWN` is a verdict that could not be reached: never the same as fine."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A secondary place of a finding, with what it has to do with it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `replacement`."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that mends the finding; `safe` when it is certain to keep the meaning the user wanted."""

    message: str
    edits: tuple[Edit, ...]
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    `message` says what is wrong with the numbers of both sides, `label` what stands under the caret, `labels` the
    other places involved, `notes` give context, `help` says what would be legal. `targets` are concrete module or
    parameter names (the first few), `target_count` how many there are in all.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    key: str | None = None
    targets: tuple[str, ...] = ()
    target_count: int = 0
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Replicated:
    """A parameter that every rank holds whole, with its size in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many parameter elements a plan shards; `replicated` is sorted by bytes, largest first.

    `bytes_total` is the model's size, `bytes_per_rank` what the fullest rank holds, `bytes_even` an even split.
    """

    parameters: int = 0
    sharded: int = 0
    bytes_total: int = 0
    bytes_per_rank: int = 0
    bytes_even: int = 0
    replicated: tuple[Replicated, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one check of one plan against one model, or of another `subject`, in the singular."""

    diagnostics: tuple[Diagnostic, ...] = ()
    sources: Sources = field(default_factory=dict)
    plan_file: str | None = None
    model_name: str = ""
    model_class: str = ""
    layout: Mapping[str, int | str] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    subject: str = "plan"

    @property
    def ok(self) -> bool:
        """Whether nothing of error severity was found."""
        return not any(d.severity is Severity.ERROR for d in self.diagnostics)
