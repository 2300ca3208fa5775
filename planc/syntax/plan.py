"""The plan as data: every token keeps its place in the text. Built by the parser, read by everything after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from planc.diagnostics.span import Span

T = TypeVar("T")
PlanKind = Literal["tp", "ep", "fsdp"]
SIZE_NAMES = ("tp_size", "ep_size", "fsdp_size", "dp_replicate_size", "pp_size")


@dataclass(frozen=True, slots=True)
class Spanned(Generic[T]):
    """A value and where it stands."""

    value: T
    span: Span


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`*`: one layer number, where transformers 5.24.0 puts its own wildcard (`replace_layer_number_by_wildcard`)."""


@dataclass(frozen=True, slots=True)
class Indices:
    """`0`, or `[0-2,5]`: an all-digit name segment out of a set (planc only). Ranges are inclusive."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Names:
    """A name segment: `q_proj` has one alternative, `{gate,up}_proj` (planc only) has two, expanded."""

    alternatives: tuple[str, ...]


Segment = Wildcard | Indices | Names


def has_wildcard_at(segments: tuple[Segment, ...], position: int) -> bool:
    """Whether transformers 5.24.0 puts `*` for a number at `position` of a name whose numbers stand as in `segments`.

    In a run of numbers every other one becomes a wildcard, because the match of one eats the dot that the next would
    need. The first of a run does, unless it leads the name.
    """
    first = position
    while first > 0 and isinstance(segments[first - 1], Wildcard | Indices):
        first -= 1
    return (position - first) % 2 == (1 if first == 0 else 0)


@dataclass(frozen=True, slots=True)
class Key:
    """The left side of a rule."""

    text: str
    segments: tuple[Segment, ...]
    span: Span

    @property
    def is_portable(self) -> bool:
        """Whether transformers understands the key unchanged: no layer index, no index set, no alternation.

        A number where transformers has no wildcard (`0.weight`, `blocks.*.1.conv`) is part of the name for it, too.
        """
        return all(
            isinstance(segment, Wildcard)
            or (isinstance(segment, Names) and len(segment.alternatives) == 1)
            or (
                isinstance(segment, Indices)
                and self.text.split(".")[position].isdecimal()
                and not has_wildcard_at(self.segments, position)
            )
            for position, segment in enumerate(self.segments)
        )


def _spelled(value: int | str) -> str:
    """A style argument: quoted where it could be read as something else."""
    if isinstance(value, int) or value.isidentifier():
        return str(value)
    return f"'{value}'" if '"' in value else f'"{value}"'


@dataclass(frozen=True, slots=True)
class StyleUse:
    """The right side of a rule: a style's name and its arguments, as in `packed_colwise(split_factor=2)`."""

    name: str
    arguments: tuple[tuple[str, int | str], ...]
    span: Span

    @property
    def text(self) -> str:
        """The canonical spelling."""
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(f'{name}={_spelled(value)}' for name, value in self.arguments)})"


@dataclass(frozen=True, slots=True)
class PlanRule:
    """One rule. `origin` tells whether the user wrote it or the model brings it; `span` covers key and style."""

    plan: PlanKind
    key: Key
    style: StyleUse
    span: Span
    origin: Literal["user", "model"] = "user"


@dataclass(frozen=True, slots=True)
class PlanSection:
    """`tp_plan`, `ep_plan` or `fsdp_plan` as written.

    `absent` (not given, or null) and `auto` mean the model's own rules; `rules` overrides them one by one; an empty
    `tp_plan` (`rules` without any) applies no TP rule at all, as in transformers 5.24.0.
    """

    state: Literal["absent", "auto", "rules"] = "absent"
    rules: tuple[PlanRule, ...] = ()
    span: Span | None = None


# A requirement's expression: a small tree over mesh sizes and config fields.
@dataclass(frozen=True, slots=True)
class Number:
    value: int
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    """A mesh size (`tp_size`), `world_size`, `efsdp_size`, or a field of the model's (text) config."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`operator` is one of `+ - * // %`, of `== != < <= > >=`, or of `and or`."""

    operator: str
    left: "Expression"
    right: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Expression"
    span: Span


Expression = Number | Name | Binary | Not


@dataclass(frozen=True, slots=True)
class Requirement:
    text: str
    expression: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed plan file, `extends` already merged in (the base's rules come first, so that later ones win).

    `sizes` holds the sizes that were given (names of `SIZE_NAMES`), command line over file; `options` the other
    fields of transformers' `DistributedConfig` that were given, and `target`.
    """

    file: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    model: Spanned[str] | None = None
    defaults: Literal["model", "none"] = "model"
    sizes: Mapping[str, Spanned[int]] = field(default_factory=dict)
    options: Mapping[str, Spanned[bool | str]] = field(default_factory=dict)
    tp_plan: PlanSection = PlanSection()
    ep_plan: PlanSection = PlanSection()
    fsdp_plan: PlanSection = PlanSection()
    require: tuple[Requirement, ...] = ()

    def section(self, plan: PlanKind) -> PlanSection:
        return {"tp": self.tp_plan, "ep": self.ep_plan, "fsdp": self.fsdp_plan}[plan]
