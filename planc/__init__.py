"""planc: a compiler and static validator for the parallelism plans of large transformers.

    report = planc.check("qwen3-30b-a3b", "plan.yaml", tp_size=4)
    report.ok, report.diagnostics

Everything is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planc.api import PlanError, check, resolve
    from planc.diagnostics.diagnostic import Diagnostic, Report, Severity

_HOMES = {
    "PlanError": "planc.api",
    "check": "planc.api",
    "resolve": "planc.api",
    "Diagnostic": "planc.diagnostics.diagnostic",
    "Report": "planc.diagnostics.diagnostic",
    "Severity": "planc.diagnostics.diagnostic",
}

__version__: str
__all__ = ["Diagnostic", "PlanError", "Report", "Severity", "__version__", "check", "resolve"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("planc")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'planc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
