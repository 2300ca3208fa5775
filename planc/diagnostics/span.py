"""Positions in source texts."""

from dataclasses import dataclass

COMMAND_LINE = "<command line>"
ARGUMENTS = "<arguments>"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A region of a source text.

    Lines and columns count from 1, in Unicode code points; `end_column` is exclusive, as in SARIF 2.1.0.
    A `file` in angle brackets is virtual: the command line, or a plan that a model brings along
    (`<Qwen3MoeForCausalLM.tp_plan>`). Its text is in the `Sources` like any other, but it has no path.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def is_virtual(self) -> bool:
        return self.file.startswith("<")
