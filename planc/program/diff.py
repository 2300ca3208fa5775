"""The difference of two programs, or of two resolved plans, as lines of text."""

from collections.abc import Callable, Iterator, Mapping

from planc.ir.operations import Operation
from planc.model import ranges
from planc.program.encoding import Numbers, encode, without_numbers
from planc.program.program import Program
from planc.resolve.resolved import ResolvedPlan
from planc.syntax.plan import PlanKind

PLANS: tuple[PlanKind, ...] = ("tp", "ep", "fsdp")
# What is done to what and how (`shard_parameter model.layers.*.mlp.up_proj.weight axis=tp`), and at which layers.
Facts = dict[str, set[Numbers]]
_NAMES = ("parameter", "module", "target", "layers")


def diff_programs(old: Program, new: Program) -> list[str]:
    """Lines `- ` for what only `old` does and `+ ` for what only `new` does, by layer kind; empty where they agree.

    Provenance doesn't count: two plans that do the same have no difference.
    """
    lines = [*_diff_values("layout", old.layout.to_json(), new.layout.to_json())]
    identities = [{"class": p.model.class_name, "manifest": p.model.manifest[:12]} for p in (old, new)]
    lines += _diff_values("model", identities[0], identities[1])
    return [*lines, *_diff_facts(_facts_of_program(old), _facts_of_program(new))]


def diff_resolved(old: ResolvedPlan, new: ResolvedPlan) -> list[str]:
    """Lines `- ` and `+ ` for what modules and parameters get in only one of two resolved plans."""
    lines = [*_diff_values("layout", old.layout.to_json(), new.layout.to_json())]
    return [*lines, *_diff_facts(_facts_of_resolution(old), _facts_of_resolution(new))]


def describe(operation: Operation) -> str:
    """An operation as one line: what, on what, how."""
    value = encode(operation)
    kind = value.pop("op")
    name = next((value.pop(field) for field in _NAMES if field in value), None)
    names = [name] if name is not None else [n or "the model" for n in value.pop("modules")]
    return " ".join([kind, "+".join(names), *(f"{key}={_text(content)}" for key, content in value.items())])


def _facts_of_program(program: Program) -> Facts:
    facts: Facts = {}
    for instruction in program.instructions:
        operation, numbers = without_numbers(instruction.operation)
        facts.setdefault(describe(operation), set()).add(numbers)
    return facts


def _facts_of_resolution(resolved: ResolvedPlan) -> Facts:
    facts: Facts = {}
    for plan in PLANS:
        for name, assignment in resolved.plan(plan).items():
            segments = name.split(".")
            generic = ".".join("*" if s.isdecimal() else s for s in segments)
            numbers = tuple(int(s) for s in segments if s.isdecimal())
            facts.setdefault(f"{plan} {generic}: {assignment.style.text}", set()).add(numbers)
    return facts


def _diff_facts(old: Facts, new: Facts) -> Iterator[str]:
    """By name, so that what changed on one module stands together."""
    for fact in sorted(old.keys() | new.keys(), key=_by_name(old, new)):
        before, after = old.get(fact, set()), new.get(fact, set())
        for sign, only in (("-", before - after), ("+", after - before)):
            if only:
                numbers = [n for n in only if n]
                yield f"{sign} {fact}" + (f"  [{', '.join(ranges.compress(numbers))}]" if numbers else "")


def _by_name(old: Facts, new: Facts) -> Callable[[str], tuple[str, bool, str]]:
    return lambda fact: (fact.split(" ")[1].rstrip(":"), fact not in old, fact)


def _diff_values(what: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for key in old:
        if old[key] != new[key]:
            yield f"- {what} {key}={old[key]}"
            yield f"+ {what} {key}={new[key]}"


def _text(content: object) -> str:
    if isinstance(content, tuple | list):
        return ",".join(map(_text, content))
    return str(content)
