"""Operations grouped by layer kind, and back: one entry for all layers that get the same.

An operation's names have `*` for every all-digit segment; `at` lists the numbers, in the notation of manifests
(`planc.model.ranges`). Entries with the same numbers form a group, in the order in which they first appear; within a
group all operations of one layer come before those of the next. FSDP entries are grouped only where they are
neighbours, since FSDP2 forms groups innermost first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from planc.ir.operations import CustomStyle, Operation, RunLocal, SplitStages, WrapFsdp
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.model import ranges
from planc.program.program import Instruction, Phase, Provenance

Numbers = tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """One operation with `*` in its names, and the numbers that each of its rules puts there."""

    phase: Phase
    operation: Operation
    numbers: dict[Provenance | None, list[Numbers]] = field(default_factory=dict)

    @property
    def at(self) -> tuple[str, ...]:
        """All numbers, whichever the rule; empty for an operation without any."""
        return _compress(numbers for several in self.numbers.values() for numbers in several)


def group(instructions: Iterable[Instruction]) -> list[tuple[Phase, tuple[str, ...], list[Entry]]]:
    """Entries grouped by phase and numbers."""
    groups: list[tuple[Phase, tuple[str, ...], list[Entry]]] = []
    latest: dict[tuple[Phase, tuple[str, ...]], list[Entry]] = {}
    for entry in _entries(instructions):
        key = (entry.phase, entry.at)
        is_neighbour = bool(groups) and groups[-1][:2] == key
        if key in latest and (entry.phase != "fsdp" or is_neighbour):
            latest[key].append(entry)
        else:
            latest[key] = [entry]
            groups.append((*key, latest[key]))
    return groups


def in_canonical_order(instructions: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """`instructions` in the order in which a file lists them."""
    return tuple(
        instruction for phase, at, entries in group(instructions) for instruction in expand(phase, at, entries)
    )


def expand(phase: Phase, at: tuple[str, ...], entries: list[Entry]) -> Iterator[Instruction]:
    """The instructions of a group."""
    rules = [{n: rule for rule, several in entry.numbers.items() for n in several} for entry in entries]
    for numbers in expand_numbers(at):
        for entry, rule_of in zip(entries, rules, strict=True):
            yield Instruction(phase, with_numbers(entry.operation, numbers), rule_of[numbers])


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
    for phase, at, entries in group(instructions):
        operations = []
        for entry in entries:
            value = encode(entry.operation)
            if provenance and (source := _encode_rules(entry, rules)) is not None:
                value["rule"] = source
            operations.append(value)
        encoded.append({"plan": phase, **({"at": list(at)} if at else {}), "operations": operations})
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


def _entries(instructions: Iterable[Instruction]) -> Iterable[Entry]:
    entries: dict[tuple[Phase, Operation], Entry] = {}
    for instruction in instructions:
        operation, numbers = without_numbers(instruction.operation)
        entry = entries.setdefault((instruction.phase, operation), Entry(instruction.phase, operation))
        entry.numbers.setdefault(instruction.rule, []).append(numbers)
    return entries.values()


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
    index = {rule: rules.setdefault(rule, len(rules)) for rule in entry.numbers if rule is not None}
    if len(entry.numbers) == 1:
        return next(iter(index.values()), None)
    return {",".join(_compress(n)): index[rule] for rule, n in entry.numbers.items() if rule is not None}


def _compress(numbers: Iterable[Numbers]) -> tuple[str, ...]:
    several = [n for n in numbers if n]
    return ranges.compress(several) if several else ()
