"""A plan file to a `Plan`, `extends` merged in, and all that is wrong with it."""

import difflib
import os
from collections.abc import Mapping as Texts
from dataclasses import replace
from pathlib import Path

from planc.diagnostics.diagnostic import Diagnostic, Label
from planc.diagnostics.span import Span
from planc.syntax import codes
from planc.syntax.fields import ALIKE, FIELDS
from planc.syntax.limits import MAX_EXTENDS
from planc.syntax.nodes import Mapping, Scalar, compose
from planc.syntax.plan import Plan
from planc.syntax.reader import PlanReader, described
from planc.syntax.source import SourceText, UnreadableError, read_source, with_line_feeds
from planc.syntax.wording import shown

# Entries that tell a plan from a bare dict of rules; comparing a name with every field takes its time.
MAX_LOOKED_AT = 100
EXTENDED_SUFFIXES = (".yaml", ".yml", ".json")


def parse_plan(path: str | Path) -> tuple[Plan | None, list[Diagnostic]]:
    """The plan in the file at `path`, and every finding about its text.

    A rule or field that can't be read is left out of the plan, so that the rest is still checked; the plan is None
    only when nothing of the file could be read.
    """
    try:
        source = read_source(str(path))
    except UnreadableError as error:
        return None, [
            codes.UnreadablePlan.code.found(
                f"can't read the plan {shown(str(path))}: {error}", span=Span(str(path), 1, 1, 1, 1)
            )
        ]
    return _Parser().parse(source)


def parse_text(
    text: str, file: str, *, extend: bool = True, texts: Texts[str, str] | None = None
) -> tuple[Plan | None, list[Diagnostic]]:
    """`parse_plan` for a text that is called `file`; `extends` is relative to that name's folder.

    Without `extend` the plan that it extends isn't read. `texts` are those of files that needn't be read again.
    """
    return _Parser(extend, texts or {}).parse(SourceText(file, with_line_feeds(text)))


class _Parser:
    """Parses a file and those that it extends."""

    def __init__(self, extend: bool = True, texts: Texts[str, str] | None = None) -> None:
        self.extend, self.texts = extend, texts or {}
        self.diagnostics: list[Diagnostic] = []
        self.sources: dict[str, str] = {}
        self.extended_from: list[tuple[str, Span]] = []

    def parse(self, source: SourceText) -> tuple[Plan | None, list[Diagnostic]]:
        plan = self._read(source)
        if plan is not None:
            plan = replace(plan, file=source.file, sources=self.sources)
        return plan, self.diagnostics

    def _read(self, source: SourceText) -> Plan | None:
        self.sources[source.file] = source.text
        root, found = compose(source)
        self.diagnostics += found
        if isinstance(root, Mapping):
            reader = PlanReader()
            plan = reader.read_bare(root) if is_bare(root) else reader.read(root, self._base(source, root))
            self.diagnostics += reader.diagnostics
            return plan
        if root is not None and not (isinstance(root, Scalar) and root.kind == "null"):
            self.diagnostics.append(
                codes.WrongType.code.found(
                    f"a plan is a mapping of fields, not {described(root)}",
                    span=root.span,
                    help=("write `field: value` lines, such as `tp_size: 2`",),
                )
            )
        elif not found:
            self.diagnostics.append(
                codes.EmptyPlan.code.found(
                    "the plan is empty",
                    span=source.span(0, 0),
                    help=("a plan that leaves everything to the model is written `tp_plan: auto`",),
                )
            )
        return None

    def _base(self, source: SourceText, root: Mapping) -> Plan:
        """The plan that `root` extends; an empty one when there is none, or none that can be read."""
        value = next((value for key, value in root.entries if key.value == "extends"), None)
        if value is None or (isinstance(value, Scalar) and value.kind == "null"):
            return Plan()
        if not isinstance(value, Scalar) or value.kind != "string" or not value.value.strip():
            self.diagnostics.append(
                codes.WrongType.code.found(
                    f"`extends` takes the name of a plan file, not {described(value)}", span=value.span
                )
            )
            return Plan()
        return (self._extended(source, value) if self.extend else None) or Plan()

    def _extended(self, source: SourceText, value: Scalar) -> Plan | None:
        path = os.path.normpath(os.path.join(os.path.dirname(source.file), value.value))
        self.extended_from.append((source.file, value.inner()))
        try:
            if "://" in value.value or "\0" in path or not path.endswith(EXTENDED_SUFFIXES):
                raise UnreadableError("only .yaml, .yml and .json files on this machine can be extended")
            if cycle := self._cycle(path):
                self.diagnostics.append(cycle)
                return None
            if len(self.extended_from) > MAX_EXTENDS:
                raise UnreadableError(f"{MAX_EXTENDS} plans extend each other already")
            return self._read(SourceText(path, self.texts[path]) if path in self.texts else read_source(path))
        except UnreadableError as error:
            self.diagnostics.append(
                codes.ExtendsUnreadable.code.found(
                    f"can't extend {shown(value.value)}: {error}",
                    span=value.inner(),
                    notes=(f"looked for {shown(path)}",),
                )
            )
            return None
        finally:
            self.extended_from.pop()

    def _cycle(self, path: str) -> Diagnostic | None:
        files = [os.path.realpath(file) for file, _ in self.extended_from]
        if os.path.realpath(path) not in files:
            return None
        *through, (_, here) = self.extended_from[files.index(os.path.realpath(path)) :]
        message = "the plan extends itself" if not through else "the plans extend each other in a circle"
        return codes.ExtendsCycle.code.found(
            message,
            span=here,
            labels=tuple(Label(span, "which is extended from here") for _, span in reversed(through)),
            help=("let one of them extend nothing",),
        )


def is_bare(root: Mapping) -> bool:
    """Whether `root` is a plan as transformers takes it: not one field, nothing like a field, styles for values."""
    return bool(root.entries) and not any(
        key.value in FIELDS
        or not isinstance(value, Scalar)
        or ("." not in key.value and difflib.get_close_matches(key.value, FIELDS, 1, cutoff=ALIKE))
        for key, value in root.entries[:MAX_LOOKED_AT]
    )
