"""Every code that planc can report, whichever stage defines it."""

from collections.abc import Mapping
from importlib import import_module

from planc.diagnostics.codes import CODES, Code

# The modules that define codes outside the rules of `check`.
_DEFINING = (
    "planc.syntax.codes",
    "planc.analysis",
    "planc.program.export",
    "planc.runtime.checkpoint.codes",
    "planc.verify.codes",
)


def all_codes() -> Mapping[str, Code]:
    """Codes in order, after importing whatever defines some. None of it needs torch."""
    from planc.check.registry import all_rules

    for module in _DEFINING:
        import_module(module)
    all_rules()
    return dict(sorted(CODES.items()))
