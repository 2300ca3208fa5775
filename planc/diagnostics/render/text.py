"""Findings for people: the rule's line with a caret under the token, in the manner of rustc."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Report, Sources
from planc.diagnostics.edits import apply_edits
from planc.diagnostics.render.coverage import coverage_line
from planc.diagnostics.render.screen import Screen, wrap
from planc.diagnostics.render.snippet import PIPE_WIDTH, Mark, SourceLine
from planc.diagnostics.render.summary import summary
from planc.diagnostics.span import Span

FEW = 3


def render(reports: Sequence[Report], screen: Screen) -> str:
    """Every finding of `reports` with its source lines, then what each plan leaves whole, then one line that counts."""
    blocks = []
    for report in reports:
        for diagnostic in report.diagnostics:
            printer = _Printer(diagnostic, report, screen, name_plan=len(reports) > 1)
            blocks.append("\n".join(printer.lines()) + "\n")
    lines = [line for report in reports if (line := coverage_line(report)) is not None]
    last = [wrapped for line in (*lines, summary(reports)) for wrapped in wrap(screen.show(line), screen.width)]
    return "\n".join([*blocks, "\n".join(last) + "\n"])


class _Printer:
    """Prints one finding."""

    def __init__(self, diagnostic: Diagnostic, report: Report, screen: Screen, name_plan: bool) -> None:
        self.diagnostic = diagnostic
        self.report = report
        self.sources: Sources = report.sources
        self.screen = screen
        self.name_plan = name_plan
        self.digits = max((len(str(line)) for line in self._quoted_lines()), default=1)

    def lines(self) -> Iterator[str]:
        yield self._header()
        quoted = list(self._snippets())
        yield from quoted
        details = list(self._details())
        if quoted and details:
            yield self._gutter("|")
        yield from details

    def _header(self) -> str:
        diagnostic, show = self.diagnostic, self.screen.show
        severity = f"{diagnostic.severity}[{diagnostic.code}]"
        place = location(diagnostic, self.report)
        return (
            f"{self.screen.paint(f'{show(place)}:', 'strong')} {self.screen.paint(severity, diagnostic.severity)}"
            f"{self.screen.paint(f': {show(diagnostic.message)}', 'strong')}"
        )

    def _quoted_lines(self) -> Iterator[int]:
        for span, _ in self._marks():
            yield span.line
        for edit in self.diagnostic.fix.edits if self.diagnostic.fix else ():
            yield edit.span.end_line + edit.replacement.count("\n")

    def _marks(self) -> list[tuple[Span, Mark]]:
        """Every place of the finding, the primary one first. A span over several lines is marked on its first."""
        diagnostic = self.diagnostic
        places = [(label.span, label.text, "secondary") for label in diagnostic.labels]
        if diagnostic.span:
            places.insert(0, (diagnostic.span, diagnostic.label, diagnostic.severity.value))
        return [(span, Mark(span.column, _end_column(span), text, role)) for span, text, role in places]

    def _snippets(self) -> Iterator[str]:
        marks = self._marks()
        files = list(dict.fromkeys(span.file for span, _ in marks))
        for file in files:
            here = sorted(((s, m) for s, m in marks if s.file == file), key=lambda place: place[0].line)
            if file != files[0] or not self.diagnostic.span:
                first = here[0][0]
                yield self._gutter(self.screen.show(f"::: {file}:{first.line}:{first.column}"), bar=False)
            yield from self._snippet(file, here)

    def _snippet(self, file: str, places: list[tuple[Span, Mark]]) -> Iterator[str]:
        text = self.sources.get(file)
        source = text.split("\n") if text is not None else []
        if not all(0 < span.line <= len(source) for span, _ in places):
            # Nothing to quote: the labels are still said.
            yield from (line for _, m in places if m.text for line in self._detail("note", m.text))
            return
        yield self._gutter("|")
        previous = None
        for number, group in groupby(places, key=lambda place: place[0].line):
            if previous is not None and number - previous == 2:
                yield from self._line(number - 1, source[number - 2], ())
            elif previous is not None and number - previous > 2:
                yield self.screen.paint("...", "gutter")
            yield from self._line(number, source[number - 1], (mark for _, mark in group))
            previous = number

    def _line(self, number: int, text: str, marks: Iterable[Mark]) -> Iterator[str]:
        first, *others = SourceLine(text, marks, self.screen, self.digits + 3).rows()
        yield f"{self.screen.paint(f'{number:>{self.digits}} |', 'gutter')} {first}".rstrip()
        bar = self._gutter("|")
        yield from (f"{bar} {row}" for row in others)

    def _gutter(self, text: str, bar: bool = True) -> str:
        return " " * (self.digits + bar) + self.screen.paint(text, "gutter")

    def _details(self) -> Iterator[str]:
        diagnostic = self.diagnostic
        if diagnostic.targets and _worth_naming(diagnostic):
            yield from self._detail("where", name_few(diagnostic.targets, diagnostic.target_count))
        if self.name_plan and self.report.plan_file and diagnostic.span and diagnostic.span.is_virtual:
            yield from self._detail("plan", self.report.plan_file)
        for note in diagnostic.notes:
            yield from self._detail("note", note)
        for text in diagnostic.help:
            yield from self._detail("help", text)
        if diagnostic.fix:
            yield from self._fix(diagnostic.fix)
        yield from self._detail("docs", f"planc explain {diagnostic.code}")

    def _detail(self, name: str, text: str) -> Iterator[str]:
        """`= name: text`, further lines of the text below the first."""
        indent = self.digits + 3 + len(name) + 2
        room = self.screen.width - indent if self.screen.width else None
        lines = [row for line in text.splitlines() for row in wrap(self.screen.show(line), room and max(room, 20))]
        head = f"{self._gutter('=')} {self.screen.paint(f'{name}:', 'strong')} "
        for line in lines or [""]:
            yield f"{head}{line}".rstrip()
            head = " " * indent

    def _fix(self, fix: Fix) -> Iterator[str]:
        yield from self._detail("fix" if fix.safe else "possible fix", fix.message)
        by_file: dict[str, list[Edit]] = {}
        for edit in fix.edits:
            by_file.setdefault(edit.span.file, []).append(edit)
        for file, edits in by_file.items():
            yield from self._patch(file, edits)

    def _patch(self, file: str, edits: list[Edit]) -> Iterator[str]:
        """The lines that `edits` touch, before and after."""
        text = self.sources.get(file)
        if text is None:
            return
        try:
            after = apply_edits(text, edits).split("\n")
        except ValueError:
            return
        before = text.split("\n")
        start = min(edit.span for edit in edits)
        behind = len(before) - max(edit.span.end_line for edit in edits)
        yield from self._patch_lines(start, before[start.line - 1 : len(before) - behind], "-", "removed")
        yield from self._patch_lines(start, after[start.line - 1 : len(after) - behind], "+", "added")

    def _patch_lines(self, start: Span, lines: list[str], sign: str, role: str) -> Iterator[str]:
        focus = Mark(start.column, start.column + 1, "", role)
        for number, line in enumerate(lines, start.line):
            shown, *_ = SourceLine(line, [focus], self.screen, self.digits + 3).rows()
            gutter = self.screen.paint(f"{number:>{self.digits}}", "gutter")
            yield f"{gutter} {self.screen.paint(f'{sign} {shown}'.rstrip(), role)}"


def location(diagnostic: Diagnostic, report: Report) -> str:
    """`file:line:column`, or the plan's or model's name where a finding has no place."""
    if span := diagnostic.span:
        return f"{span.file}:{span.line}:{span.column}"
    return report.plan_file or report.model_name or "planc"


def name_few(names: Sequence[str], count: int) -> str:
    """The first few of `names`, and how many more of `count` there are."""
    count = max(count, len(names))
    shown = names if count <= FEW else names[:FEW]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _worth_naming(diagnostic: Diagnostic) -> bool:
    """Whether the targets say something that the message and the key don't."""
    return max(diagnostic.target_count, len(diagnostic.targets)) > 1 or (
        diagnostic.targets[0] != diagnostic.key and diagnostic.targets[0] not in diagnostic.message
    )


def _end_column(span: Span) -> int:
    return span.end_column if span.end_line == span.line else span.column + PIPE_WIDTH
