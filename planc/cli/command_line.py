"""The command line as a source text, so that findings can point into it."""

import shlex
from collections.abc import Mapping, Sequence

from planc.analysis import Given
from planc.diagnostics.span import COMMAND_LINE, Span
from planc.syntax.plan import Plan, Spanned


class CommandLine:
    """The words that were typed after `planc`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.text = shlex.join(["planc", *words])

    def given(self, model: str | None, sizes: Mapping[str, int | None], options: Mapping[str, str | None]) -> Given:
        """What the command line says of a plan; sizes and options that are None weren't given."""
        from planc.syntax.arguments import with_overrides

        plan = with_overrides(
            Plan(),
            {name: size for name, size in sizes.items() if size is not None},
            {name: value for name, value in options.items() if value is not None},
            self.text,
        )
        spanned = Spanned(model, self._place(model)) if model is not None else None
        return Given(spanned, plan.sizes, plan.options, plan.sources)

    def _place(self, word: str) -> Span:
        """Where `word` stands."""
        quoted = shlex.quote(word)
        start = f"{self.text} ".find(f" {quoted} ") + 2
        return Span(COMMAND_LINE, 1, start, 1, start + len(quoted))
