"""Plans that don't come from a file: Python arguments and the command line."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from planc.diagnostics.diagnostic import Diagnostic
from planc.diagnostics.span import ARGUMENTS, COMMAND_LINE
from planc.syntax import codes
from planc.syntax.parser import parse_text
from planc.syntax.plan import Plan, Spanned
from planc.syntax.source import SourceText
from planc.syntax.wording import double_quoted

T = TypeVar("T")
MAX_DEPTH = 30


def plan_from_mapping(mapping: Mapping[str, Any], file: str = ARGUMENTS) -> tuple[Plan | None, list[Diagnostic]]:
    """`parse_plan` for a dict with the fields of a plan file, or a bare dict as transformers takes for `tp_plan`.

    Every value gets a span in a YAML text made for it, which `Plan.sources` holds under `file`.
    """
    try:
        text = "".join(f"{line}\n" for line in _lines(mapping, 0)) if mapping else "{}\n"
    except _TooDeepError:
        return None, [codes.TooLarge.code.found(f"the plan is nested more than {MAX_DEPTH} levels deep")]
    return parse_text(text, file)


def with_overrides(
    plan: Plan,
    sizes: Mapping[str, int],
    options: Mapping[str, bool | str],
    text: str,
    file: str = COMMAND_LINE,
) -> Plan:
    """`plan` with the values of a command line over its own.

    `text` is the command line as typed, arguments apart by spaces. A value's span is that of `8` in `--tp-size 8` or
    `--tp-size=8`, of the flag where it has no value, and of the whole text where the flag isn't in it.
    """
    source = SourceText(file, text)
    return replace(
        plan,
        sources={**plan.sources, file: text},
        sizes={**plan.sizes, **{name: _spanned(source, name, size) for name, size in sizes.items()}},
        options={**plan.options, **{name: _spanned(source, name, value) for name, value in options.items()}},
    )


def _spanned(source: SourceText, name: str, value: T) -> Spanned[T]:
    flag = re.escape("--" + name.replace("_", "-"))
    shown = re.escape(str(value))
    places = list(re.finditer(rf"(?:^|(?<=\s))(?:{flag}[ =]['\"]?({shown})|({flag}))(?=['\"\s]|$)", source.text))
    if not places:
        return Spanned(value, source.span(0, len(source.text)))
    place = places[-1]
    return Spanned(value, source.span(*place.span(place.lastindex or 0)))


class _TooDeepError(Exception):
    """Deeper than any plan, or a container inside itself."""


def _lines(value: Any, depth: int) -> Iterator[str]:
    """`value` as lines of block YAML."""
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, Mapping) and value:
        yield from _entries(((f"{_scalar(str(key))}:", item) for key, item in value.items()), depth)
    elif isinstance(value, list | tuple) and value:
        yield from _entries((("-", item) for item in value), depth)
    else:
        yield _scalar(value)


def _entries(entries: Iterable[tuple[str, Any]], depth: int) -> Iterator[str]:
    for head, item in entries:
        if isinstance(item, Mapping | list | tuple) and item:
            yield head
            yield from ("  " + line for line in _lines(item, depth + 1))
        else:
            yield f"{head} {_scalar(item)}"


def _scalar(value: Any) -> str:
    """`value` in one line of YAML; what YAML has no type for becomes the text that Python prints."""
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    text = str(value)
    if re.fullmatch(r"[A-Za-z_][\w.*/-]*", text) and text.lower() not in ("null", "true", "false"):
        return text
    return double_quoted(text)
