"""Checks a plan given as data, and shows what planc says of it."""

import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ruamel.yaml import YAML

from planc.check.checker import run
from planc.check.coverage import coverage
from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render.screen import Screen
from planc.diagnostics.render.text import render
from planc.model.manifest import Manifest
from planc.model.sources import load_manifest
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import resolve
from planc.syntax.parser import parse_text


@cache
def _manifest(model: str, overrides: str) -> Manifest:
    return load_manifest(model, config=json.loads(overrides))


def manifest(model: str, config: Mapping[str, Any] | None = None) -> Manifest:
    return _manifest(model, json.dumps(config or {}))


def context(
    model: str | Manifest,
    plan: str | Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None = None,
    world_size: int | None = None,
    target: str | None = None,
) -> CheckContext:
    """`plan` is a plan file's text, or its content."""
    parsed, found = parse_text(plan if isinstance(plan, str) else dumped(plan), "plan.yaml")
    assert parsed is not None and not found, found
    facts = model if isinstance(model, Manifest) else manifest(model, config)
    layout = derive_layout(parsed, world_size)
    return CheckContext(parsed, facts, layout, resolve(parsed, facts, layout), world_size, target)


def report(checked: CheckContext, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> Report:
    sources = {**checked.plan.sources, **checked.resolved.sources}
    found = tuple(run(checked, select, ignore))
    return Report(found, sources, "plan.yaml", coverage=coverage(checked))


def text(of: Report) -> str:
    """The text output, on lines too long to wrap."""
    return render([of], Screen(width=10_000, colour=False))


def codes(of: Report, *severities: str) -> list[str]:
    """The codes found, sorted; only those of `severities`, where some are given."""
    return sorted({d.code for d in of.diagnostics if not severities or d.severity in severities})


def dumped(content: Mapping[str, Any]) -> str:
    stream = io.StringIO()
    YAML().dump(dict(content) or {"tp_plan": "auto"}, stream)
    return stream.getvalue()
