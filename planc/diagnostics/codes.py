"""The registry of codes. A code never changes its meaning; its class docstring is its documentation."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from planc.diagnostics.diagnostic import Diagnostic, Severity

C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding: `PL301`, its name `kv-heads-not-divisible`, its usual severity and its documentation."""

    code: str
    name: str
    severity: Severity
    documentation: str

    def found(self, message: str, **fields: Any) -> Diagnostic:
        """A `Diagnostic` of this kind; `fields` are those of `Diagnostic`, `severity` may be overridden."""
        return Diagnostic(self.code, fields.pop("severity", self.severity), message, **fields)


CODES: dict[str, Code] = {}


def define(code: str, name: str, severity: Severity) -> Callable[[C], C]:
    """Class decorator: register `code`; the class gets it as its attribute `code`.

    The docstring is prose, as `planc explain` prints it: what the rule looks for, in one line; why that is bad; an
    example; what to use instead; where in the libraries it is so.
    """

    def register(cls: C) -> C:
        if code in CODES:
            raise ValueError(f"{code} is defined twice")
        CODES[code] = cls.code = Code(code, name, severity, inspect.cleandoc(cls.__doc__ or ""))
        return cls

    return register
