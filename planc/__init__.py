"""planc: a compiler and static validator for the parallelism plans of large transformers.

    report = planc.check("qwen3-30b-a3b", "plan.yaml", tp_size=4)
    report.ok, report.diagnostics

Everything is imported when it is first used. Some functions bear the name of the stage that does their work, as
`planc.check` and the package `planc.check` do: such a package can be called.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planc.analysis import PlanError
    from planc.api import (
        apply,
        check,
        compile,
        distributed_config,
        from_pretrained,
        load_training,
        parallelism_config,
        prepare_trainer,
        resolve,
        save_pretrained,
        save_training,
        verify,
    )
    from planc.diagnostics.diagnostic import Diagnostic, Report, Severity
    from planc.program.errors import ProgramError
    from planc.program.program import Program
    from planc.runtime.batches import data_rank, data_world_size
    from planc.runtime.gradients import clip_grad_norm_, parameter_groups

_HOMES = {
    "apply": "planc.api",
    "compile": "planc.api",
    "distributed_config": "planc.api",
    "from_pretrained": "planc.api",
    "load_training": "planc.api",
    "clip_grad_norm_": "planc.runtime.gradients",
    "data_rank": "planc.runtime.batches",
    "data_world_size": "planc.runtime.batches",
    "parallelism_config": "planc.api",
    "parameter_groups": "planc.runtime.gradients",
    "prepare_trainer": "planc.api",
    "save_pretrained": "planc.api",
    "save_training": "planc.api",
    "PlanError": "planc.analysis",
    "Diagnostic": "planc.diagnostics.diagnostic",
    "Report": "planc.diagnostics.diagnostic",
    "Program": "planc.program.program",
    "ProgramError": "planc.program.errors",
    "Severity": "planc.diagnostics.diagnostic",
}
_CALLABLE_STAGES = {"check", "resolve", "verify"}

__version__: str
__all__ = [
    "Diagnostic",
    "PlanError",
    "Program",
    "ProgramError",
    "Report",
    "Severity",
    "__version__",
    "apply",
    "check",
    "clip_grad_norm_",
    "compile",
    "data_rank",
    "data_world_size",
    "distributed_config",
    "from_pretrained",
    "load_training",
    "parallelism_config",
    "parameter_groups",
    "prepare_trainer",
    "resolve",
    "save_pretrained",
    "save_training",
    "verify",
]


class _CallableStage(ModuleType):
    """A stage's package; calling it calls the function of `planc.api` of the same name."""

    @property
    def _function(self) -> Any:
        return getattr(import_module("planc.api"), self.__name__.rpartition(".")[2])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(self._function)


class _Planc(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds a subpackage to its parent in this way, whoever imports it first.
        if name in _CALLABLE_STAGES and isinstance(value, ModuleType):
            value.__class__ = _CallableStage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Planc


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("planc")
    if name in _CALLABLE_STAGES:
        return import_module(f"planc.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'planc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
