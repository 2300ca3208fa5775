"""The interpreter of programs: one file a family of operations. It knows no style and no model."""

from planc.runtime.interpreter.application import Application, apply_operations, handles

__all__ = ["Application", "apply_operations", "handles"]
