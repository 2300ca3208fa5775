"""Every code that planc can report, whichever stage defines it."""

from collections.abc import Mapping

from planc.diagnostics.codes import CODES, Code


def all_codes() -> Mapping[str, Code]:
    """Codes in order, after importing whatever defines some."""
    import planc.api
    import planc.program.export
    import planc.runtime.checkpoint.codes
    import planc.syntax.codes  # noqa: F401  (defines PL0xx)
    from planc.check.registry import all_rules

    all_rules()
    return dict(sorted(CODES.items()))
