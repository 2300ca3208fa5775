"""What a rule of the checker sees and says. Rules collect findings and never print; one rule a file."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic
from planc.layouts.layout import Layout
from planc.model.manifest import Manifest
from planc.resolve.resolved import ResolvedPlan
from planc.syntax.plan import Plan


@dataclass(frozen=True)
class CheckContext:
    """One plan against one model at one layout.

    `world_size` is what the launcher will start, where it was said. `target` is the runtime whose limits apply
    (`trainer`), where it was named. `resolved.layout` equals `layout`; the sizes may be illegal together.
    """

    plan: Plan
    manifest: Manifest
    layout: Layout
    resolved: ResolvedPlan
    world_size: int | None = None
    target: str | None = None


class Rule(ABC):
    """A rule of the checker. Decorate with `define(code, name, severity)`; the class docstring is its documentation."""

    code: ClassVar[Code]

    @abstractmethod
    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        """Every finding of this rule."""
