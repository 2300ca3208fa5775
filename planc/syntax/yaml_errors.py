"""What ruamel.yaml says of broken YAML, in the words of a plan's author."""

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from planc.diagnostics.diagnostic import Diagnostic, Label
from planc.diagnostics.span import Span
from planc.syntax import codes
from planc.syntax.source import SourceText

_MISSING_COLON = "a `:` is missing after the key"
_WRITE_COLON = "write `key: value`, with a space after the `:`"
_NO_COLON = "could not find expected ':'"

# Part of ruamel.yaml's message to ours, and what helps. The first that fits is taken.
_IN_WORDS = (
    ("'\\t' that cannot start", "a tab can't indent a line", "indent by spaces"),
    ("'@' that cannot start", "a value can't start with `@`", "put quotes around it"),
    ("'`' that cannot start", "a value can't start with a backtick", "put quotes around it"),
    ("'%' that cannot start", "a value can't start with `%`", "put quotes around it"),
    (
        "mapping values are not allowed",
        "a `:` can't stand here",
        "one `key: value` a line, its key at the column of its neighbours; quote a value that holds `: `",
    ),
    ("'<stream end>'", "the file ends in the middle of a list or mapping", "close the bracket"),
    ("unexpected end of stream", "the file ends in the middle of a quoted text", "close the quote"),
    ("unknown escape", "unknown escape in a double-quoted text", "single quotes take every character as it is"),
    (
        "expected ',' or '}'",
        "a `,` or `}` is missing",
        "inside `{…}`, put quotes around keys that hold `[`, `]`, `{`, `}` or `,`",
    ),
    (
        "expected ',' or ']'",
        "a `,` or `]` is missing",
        "inside `[…]`, put quotes around values that hold `[`, `]`, `{`, `}` or `,`",
    ),
    (
        "expected <block end>",
        "this line doesn't continue what stands above it",
        "indent it like its neighbours; put quotes around a key or value that starts with `[`, `{` or a quote",
    ),
    (_NO_COLON, _MISSING_COLON, _WRITE_COLON),
    ("content, but found ','", "there is nothing in front of this `,`", "remove it"),
    ("expected the node content", "a value is missing here", "write it, or remove what asks for it"),
    (
        "expected '<document start>'",
        "this line doesn't continue what stands above it",
        "indent it like its neighbours; put quotes around a key or value that starts with `*`, `[`, `{` or a quote",
    ),
)


def broken_yaml(error: MarkedYAMLError, source: SourceText) -> Diagnostic:
    """The finding for a text that isn't YAML."""
    problem = " ".join(part for part in (error.context, error.problem) if part)
    message, helps = next(
        ((ours, (help_,)) for theirs, ours, help_ in _IN_WORDS if theirs in problem), (f"not YAML: {problem}", ())
    )
    if _NO_COLON in problem:
        return codes.NotYaml.code.found(message, span=_line_at(error.context_mark.index, source), help=helps)
    mark = error.problem_mark or error.context_mark
    if "mapping values are not allowed" in problem and (above := _without_colon_above(mark.line, source)) is not None:
        return codes.NotYaml.code.found(_MISSING_COLON, span=_line_at(above, source), help=(_WRITE_COLON,))
    start = min(mark.index, len(source.text)) if mark else 0
    labels: tuple[Label, ...] = ()
    if error.context_mark and error.context_mark.index < start:
        opened = error.context_mark.index
        labels = (Label(source.span(opened, opened + 1), "starts here"),)
    end = start if source.text[start : start + 1] in ("", "\n") else start + 1
    return codes.NotYaml.code.found(message, span=source.span(start, end), labels=labels, help=helps)


def _without_colon_above(line: int, source: SourceText) -> int | None:
    """The offset of the text on the line above `line`, if it is a key that lacks its `:`; YAML blames the next one."""
    lines = source.text.split("\n")
    text = lines[line - 1] if line else ""
    indent, below = (len(t) - len(t.lstrip()) for t in (text, lines[line]))
    if not text.strip() or ":" in text or "#" in text or text.lstrip().startswith("- ") or below != indent:
        return None
    return sum(len(t) + 1 for t in lines[: line - 1]) + indent


def _line_at(start: int, source: SourceText) -> Span:
    """From `start` to the end of its line."""
    return source.span(start, start + len(source.text[start:].split("\n", 1)[0].rstrip()))


def unprintable(error: ReaderError, source: SourceText) -> Diagnostic:
    """The finding for a character that YAML doesn't allow in any place."""
    character = error.character if isinstance(error.character, int) else ord(error.character)
    start = error.position
    return codes.NotYaml.code.found(
        f"the character U+{character:04X} can't stand in a YAML file", span=source.span(start, start + 1)
    )
