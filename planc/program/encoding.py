"""Operations grouped by layer kind, and back: one entry for all layers that get the same.

An operation's names have `*` for every all-digit segment; a layer is the numbers that stand there. Layers that get the
same operations in the same order are of one kind: a group, whose `at` lists their numbers in the notation of manifests
(`planc.model.ranges`). Groups come in the order in which their first layers appear; those of FSDP with more numbers
first, so that what is inside a layer is wrapped before the layer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from planc.ir.operations import CustomStyle, Operation, RunLocal, SplitStages, WrapFsdp
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.model import ranges
from planc.program.program import Instruction, Phase, Provenance

Numbers = tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """One operation of a layer kind with `*` in its names, and the layers in which each of its rules asked for it."""

    operation: Operation
    layers: dict[Provenance | None, list[Numbers]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A layer kind: its numbers, empty where the names have none, and its operations in order."""

    phase: Phase
    at: tuple[str, ...]
    entries: tuple[Entry, ...]


def group(instructions: Iterable[Instruction]) -> list[Group]:
    """The layer kinds of `instructions`."""
    layers: dict[tuple[Phase, Numbers], list[tuple[Operation, Provenance | None]]] = {}
    for instruction in instructions:
        operation, numbers = without_numbers(instruction.operation)
        layers.setdefault((instruction.phase, numbers), []).append((operation, instruction.rule))
    kinds: dict[tuple[Phase, int, tuple[Operation, ...]], list[Numbers]] = {}
    for (phase, numbers), listed in layers.items():
        kinds.setdefault((phase, len(numbers), tuple(op for op, _ in listed)), []).append(numbers)
    groups = []
    for (phase, _, operations), several in sorted(kinds.items(), key=_place):
        entries = tuple(Entry(operation) for operation in operations)
        for numbers in several:
            for entry, (_, rule) in zip(entries, layers[phase, numbers], strict=True):
                entry.layers.setdefault(rule, []).append(numbers)
        groups.append(Group(phase, _compress(several), entries))
    return groups


def _place(kind: tuple[tuple[Phase, int, tuple[Operation, ...]], list[Numbers]]) -> tuple[int, int]:
    (phase, depth, _), _ = kind
    return get_args(Phase).index(phase), -depth if phase == "fsdp" else 0


def in_canonical_order(instructions: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """`instructions` in the order in which a file lists them."""
    return tuple(instruction for kind in group(instructions) for instruction in expand(kind))


def expand(kind: Group) -> Iterator[Instruction]:
    """The instructions of a layer kind, layer by layer."""
    rules = [{n: rule for rule, several in entry.layers.items() for n in several} for entry in kind.entries]
    for numbers in expand_numbers(kind.at):
        for entry, rule_of in zip(kind.entries, rules, strict=True):
            yield Instruction(kind.phase, with_numbers(entry.operation, numbers), rule_of[numbers])


def expand_numbers(at: tuple[str, ...]) -> Iterator[Numbers]:
    """Every number tuple that `at` lists; one empty tuple where it lists none."""
    if not at:
        yield ()
    for item in at:
        yield from ranges.expand(ranges.parse(item))


def encode_groups(
    instructions: Iterable[Instruction], provenance: bool = True
) -> tuple[list[dict[str, Any]], list[Provenance]]:
    """Groups as JSON values, and the table of rules that their operations point into (empty without `provenance`)."""
    rules: dict[Provenance, int] = {}
    encoded = []
    for kind in group(instructions):
        operations = []
        for entry in kind.entries:
            value = encode(entry.operation)
            if provenance and (source := _encode_rules(entry, rules)) is not None:
                value["rule"] = source
            operations.append(value)
        encoded.append({"plan": kind.phase, **({"at": list(kind.at)} if kind.at else {}), "operations": operations})
    return encoded, list(rules)


def encode(operation: Operation) -> dict[str, Any]:
    """An operation as a JSON value: placements as text, fields that have their default left out."""
    value: dict[str, Any] = {}
    for f in fields(operation):
        content = getattr(operation, f.name)
        if f.name == "op" or content != f.default:
            value[f.name] = str(content) if isinstance(content, Replicate | Shard | StridedShard | Partial) else content
    return value


def without_numbers(operation: Operation) -> tuple[Operation, Numbers]:
    """`operation` with `*` for every all-digit segment of its name, and the numbers.

    Stages and FSDP groups of several modules keep their names.
    """
    name = _name(operation)
    if name is None:
        return operation, ()
    segments = name.split(".")
    numbers = tuple(int(s) for s in segments if s.isdecimal())
    if not numbers:
        return operation, ()
    return _renamed(operation, name, ".".join("*" if s.isdecimal() else s for s in segments)), numbers


def with_numbers(operation: Operation, numbers: Numbers) -> Operation:
    """The inverse of `without_numbers`. Raises ValueError where the name has another count of `*`."""
    name = _name(operation) or ""
    segments = name.split(".")
    if segments.count("*") != len(numbers):
        raise ValueError(f"`{name}` has {segments.count('*')} layer numbers, its group gives {len(numbers)}")
    if not numbers:
        return operation
    rest = iter(numbers)
    return _renamed(operation, name, ".".join(str(next(rest)) if s == "*" else s for s in segments))


def _name(operation: Operation) -> str | None:
    if isinstance(operation, SplitStages):
        return None
    if isinstance(operation, WrapFsdp):
        return operation.modules[0] if len(operation.modules) == 1 else None
    if isinstance(operation, CustomStyle):
        return operation.target
    name: str = operation.parameter if hasattr(operation, "parameter") else operation.module
    return name


def _renamed(operation: Operation, old: str, new: str) -> Operation:
    if isinstance(operation, WrapFsdp):
        return replace(operation, modules=(new,))
    if isinstance(operation, CustomStyle):
        return replace(operation, target=new)
    if isinstance(operation, RunLocal):
        # A bias is a parameter of the module itself: its name begins with the module's.
        added = tuple(new + name.removeprefix(old) for name in operation.added_after)
        return replace(operation, module=new, added_after=added)
    changed: dict[str, Any] = {"parameter" if hasattr(operation, "parameter") else "module": new}
    return replace(operation, **changed)


def _encode_rules(entry: Entry, rules: dict[Provenance, int]) -> int | Mapping[str, int] | None:
    """An index into the table of rules, or one for each set of numbers where several rules made one entry."""
    index = {rule: rules.setdefault(rule, len(rules)) for rule in entry.layers if rule is not None}
    if len(entry.layers) == 1:
        return next(iter(index.values()), None)
    return {",".join(_compress(n)): index[rule] for rule, n in entry.layers.items() if rule is not None}


def _compress(numbers: Iterable[Numbers]) -> tuple[str, ...]:
    several = [n for n in numbers if n]
    return ranges.compress(several) if several else ()
