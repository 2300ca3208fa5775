"""What a key names in a model, and what that gets: the answer of `planc explain KEY MODEL [PLAN]`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from planc.diagnostics.render.summary import counted

if TYPE_CHECKING:
    from planc.check.rule import CheckContext
    from planc.resolve.resolved import ResolvedPlan
    from planc.syntax.plan import Key, PlanKind, PlanRule

PLANS: "tuple[PlanKind, ...]" = ("tp", "ep", "fsdp")


def parsed(text: str) -> "Key":
    """`text` as a key. Raises click.UsageError."""
    from planc.syntax.arguments import plan_from_mapping

    plan, found = plan_from_mapping({"tp_plan": {text: "replicate"}})
    if plan is None or found or not plan.tp_plan.rules:
        raise click.UsageError(f"`{text}` is neither a code nor a key: " + "; ".join(d.message for d in found))
    return plan.tp_plan.rules[0].key


def explain_key(text: str, context: "CheckContext") -> str:
    """What `text`, a key, names, which rules decide what that gets, and what flows through its modules.

    Raises click.UsageError if it names nothing, and no rule of the model's own plan has this key.
    """
    from planc.cli.dispatch import explain_dispatch
    from planc.flow.picture import explain
    from planc.resolve.index import NameIndex

    names = NameIndex(context.manifest).names(parsed(text))
    if not names:
        dead = [rule for rule in context.rules("model") if rule.key.text == text]
        if dead:
            return "".join(f"{line}\n" for line in _unbuilt(dead, context))
        raise click.UsageError(f"`{text}` matches nothing in {context.manifest.file.class_name}")
    outcomes: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        outcomes.setdefault(tuple(_outcome(name, context)), []).append(name)
    paragraphs = ["\n".join(_paragraph(lines, names)) for lines, names in outcomes.items()]
    parts = (explain(context.flow, names), explain_dispatch(context, names))
    return "\n".join([*paragraphs, *("\n" + part.rstrip("\n") for part in parts if part)]) + "\n"


def _unbuilt(rules: "list[PlanRule]", context: "CheckContext") -> Iterator[str]:
    """What to say of a key that is in the model's own plan for other configs (PL102)."""
    yield f"`{rules[0].key.text}` names nothing that this config of {context.manifest.file.class_name} builds"
    for rule in rules:
        yield f"  {rule.plan}: the model's own plan has {_quoted(rule)} for other configs"


def _paragraph(lines: tuple[str, ...], names: list[str]) -> Iterator[str]:
    head, *rest = lines
    yield f"{counted(len(names), 'target')}: {names[0]}" + (f" … {names[-1]}" if len(names) > 1 else "")
    yield f"  {head}"
    yield from (f"  {line}" for line in rest)


def _outcome(name: str, context: "CheckContext") -> Iterator[str]:
    """What `name` is, then what it gets of each plan; the same lines for names that are alike."""
    if name in context.manifest.parameters:
        _, entry = context.manifest.parameters[name]
        yield f"a parameter of shape {list(entry.shape)}, {entry.dtype}"
    else:
        module = context.manifest.modules[name]
        own = ", ".join(f"{p.name} {list(p.shape)}" for p in module.entry.parameters)
        yield f"a {module.entry.class_name}" + (f" with {own}" if own else "")
    for kind in PLANS:
        yield from _of_plan(kind, name, context.resolved)


def _of_plan(kind: "PlanKind", name: str, resolved: "ResolvedPlan") -> Iterator[str]:
    assignment = resolved.plan(kind).get(name)
    naming = [rule for rule in resolved.rules.get(kind, ()) if name in resolved.matches.get(rule, ())]
    if assignment is not None:
        way = ", as its module" if assignment.by_module else ""
        yield f"{kind}: {assignment.style.text}{way}, from {_quoted(assignment.rule)}"
        yield from (f"    hides {_quoted(rule)}" for rule in reversed(assignment.hides))
    elif naming:
        for rule in naming:
            winner = resolved.displaced.get(rule)
            why = f"displaced by {_quoted(winner)}" if winner else "off at these sizes"
            yield f"{kind}: nothing; {_quoted(rule)} is {why}"
    else:
        yield f"{kind}: nothing, no rule names it"


def _quoted(rule: "PlanRule") -> str:
    return f"`{rule.key.text}: {rule.style.text}` ({rule.span.file}:{rule.span.line})"
