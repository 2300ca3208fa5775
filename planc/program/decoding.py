"""Reading a program file: untrusted input, every fault as one message."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from planc.ir.operations import OPERATIONS, Operation
from planc.layouts.layout import Layout
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.model import ranges
from planc.program.encoding import Entry, Group, encode, expand, expand_numbers, in_canonical_order
from planc.program.errors import ProgramError
from planc.program.program import CarriedPlans, Instruction, ModelIdentity, Program, Provenance, canonical
from planc.syntax.limits import MAX_DIGITS
from planc.syntax.plan import PlanKind
from planc.syntax.wording import shown

_PLACEMENT = re.compile(r"(?:(?P<kind>[RP])|S\((?P<dim>-?\d{1,2})(?:, parts=(?P<parts>\d{1,6}))?\))")


def _default(cls: type[Operation], name: str) -> object:
    # Dataclasses with slots don't keep defaults as class attributes.
    return next(f.default for f in fields(cls) if f.name == name)


# By operation: its fields, and those that are placements (a custom style's `target` is a name).
_FIELDS = {str(_default(cls, "op")): {f.name: f.type == Placement for f in fields(cls)} for cls in OPERATIONS}
# More than any released model needs at the finest: every expert's every weight named apart.
_MOST_OPERATIONS = 1_000_000
Size = Annotated[int, Field(ge=1, le=2**31)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Layout(_File):
    pp_size: Size
    dp_replicate_size: Size
    fsdp_size: Size
    tp_size: Size
    ep_size: Size
    ep_implementation: str


class _Model(_File):
    name: str
    class_name: str
    manifest: str


class _Rule(_File):
    file: str
    line: Annotated[int, Field(ge=0)]
    key: str
    style: str


class _Plans(_File):
    merged: dict[PlanKind, dict[str, str]]
    given: dict[PlanKind, dict[str, str]]
    options: dict[str, bool]


class _Group(_File):
    plan: Literal["pp", "tp", "ep", "fsdp"]
    at: tuple[str, ...] = ()
    # Without operations the number of layers would be bounded by nothing.
    operations: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]


class _ProgramFile(_File):
    format_version: Literal[1]
    hash: str
    layout: _Layout
    model: _Model
    plans: _Plans | None = None
    rules: tuple[_Rule, ...]
    groups: tuple[_Group, ...]


def decode(content: bytes, origin: str) -> Program:
    """The program in `content`; `origin` names it in errors. Raises ProgramError."""
    try:
        file = _ProgramFile.model_validate(_parse(content))
        program = _program(file)
    except ValidationError as error:
        raise ProgramError(f"`{origin}` is not a program", tuple(_explain(error))) from None
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"`{origin}` is not a program", (str(error) or type(error).__name__,)) from None
    if program.hash != file.hash:
        raise ProgramError(
            f"`{origin}` was changed after it was compiled: its hash is {program.hash[:12]}, the file says "
            f"{file.hash[:12]}"
        )
    return program


def _parse(content: bytes) -> Any:
    """The JSON in `content`. Raises ValueError, also for what JSON allows and no program holds."""
    value = json.loads(content, object_pairs_hook=_object, parse_int=_whole_number)
    try:
        canonical(value)
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{shown(next(n for n in found if names.count(n) > 1))} stands twice in one object")
    return found


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{shown(text)} has more than {MAX_DIGITS} digits")
    return int(text)


def parse_placement(text: object) -> Placement:
    """The inverse of `str` on a placement. Raises ValueError."""
    match = _PLACEMENT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"`{str(text)[:40]}` is not a placement (`R`, `P`, `S(0)`, `S(0, parts=2)`)")
    if match["kind"]:
        return Replicate() if match["kind"] == "R" else Partial()
    if match["parts"]:
        return StridedShard(int(match["dim"]), int(match["parts"]))
    return Shard(int(match["dim"]))


def _program(file: _ProgramFile) -> Program:
    rules = [Provenance(**rule.model_dump()) for rule in file.rules]
    # The hash is over the canonical order: no other one is run.
    instructions = in_canonical_order(_instructions(file, rules))
    seen: set[Operation] = set()
    for operation in (instruction.operation for instruction in instructions):
        if operation in seen:
            raise ValueError(f"`{operation.op}` stands twice: {shown(str(canonical(encode(operation)), 'utf-8'))}")
        seen.add(operation)
    return Program(
        Layout(**file.layout.model_dump()),
        ModelIdentity(**file.model.model_dump()),
        instructions,
        plans=CarriedPlans(**file.plans.model_dump()) if file.plans is not None else CarriedPlans(),
    )


def _instructions(file: _ProgramFile, rules: list[Provenance]) -> Iterator[Instruction]:
    total = 0
    for group in file.groups:
        layers = sum(ranges.count(ranges.parse(item)) for item in group.at) if group.at else 1
        total += layers * len(group.operations)
        if total > _MOST_OPERATIONS:
            raise ValueError(f"more than {_MOST_OPERATIONS:,} operations")
        entries = tuple(_entry(group, value, rules) for value in group.operations)
        yield from expand(Group(group.plan, group.at, entries))


def _entry(group: _Group, value: dict[str, Any], rules: list[Provenance]) -> Entry:
    source = value.pop("rule", None)
    numbers = list(expand_numbers(group.at))
    entry = Entry(_operation(value))
    if not isinstance(source, Mapping):
        entry.layers[_rule(source, rules)] = numbers
        return entry
    rest = dict.fromkeys(numbers)
    listed = [item for at in source for item in at.split(",")]
    if sum(ranges.count(ranges.parse(item)) for item in listed) > len(numbers):
        raise ValueError(f"`rule` lists more layers than its group, which has {len(numbers)}")
    for at, index in source.items():
        covered = [n for n in expand_numbers(tuple(at.split(","))) if n in rest]
        for n in covered:
            del rest[n]
        entry.layers.setdefault(_rule(index, rules), []).extend(covered)
    if rest:
        entry.layers.setdefault(None, []).extend(rest)
    return entry


def _rule(index: object, rules: list[Provenance]) -> Provenance | None:
    if index is None:
        return None
    if not isinstance(index, int) or not 0 <= index < len(rules):
        raise ValueError(f"`rule` is {str(index)[:20]}, the file lists {len(rules)} rules")
    return rules[index]


def _operation(value: dict[str, Any]) -> Operation:
    op = value.get("op")
    if not isinstance(op, str) or op not in _FIELDS:
        raise ValueError(f"`{str(op)[:40]}` is not an operation ({', '.join(_FIELDS)})")
    if unknown := value.keys() - _FIELDS[op].keys():
        raise ValueError(f"`{op}` has no field {', '.join(f'`{u[:40]}`' for u in sorted(unknown))}")
    parsed = {k: parse_placement(v) if _FIELDS[op][k] else v for k, v in value.items()}
    return _adapter().validate_python(parsed)


@cache
def _adapter() -> TypeAdapter[Operation]:
    return TypeAdapter(Annotated[Operation, Field(discriminator="op")])


def _explain(error: ValidationError) -> Iterator[str]:
    """The first few faults with their places in the file."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in faults[:5]:
        yield f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}"
    if len(faults) > 5:
        yield f"(and {len(faults) - 5} more)"
