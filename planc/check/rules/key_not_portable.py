"""PL601."""

from collections.abc import Iterator
from dataclasses import replace

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.registry import get

RUNS_IN_TRANSFORMERS = ("trainer",)


@define("PL601", "key-not-portable", Severity.NOTE)
class KeyNotPortable(Rule):
    """Says which keys and styles transformers can't take unchanged.

    transformers looks a name up with every layer number replaced by `*`. It can't address single layers or sets of
    them, knows no alternation, and a style's arguments can't be given in its plan. planc's own runtime can all of
    this; where the target is the Trainer, which applies the plan itself, it is an error.

    Example:

        target: trainer
        tp_plan:
          model.layers.*.mlp.{gate,up}_proj: colwise

    Use instead:

        target: trainer
        tp_plan:
          model.layers.*.mlp.gate_proj: colwise
          model.layers.*.mlp.up_proj: colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.target == "torchrun":
            return
        found = [*self._keys(context), *self._arguments(context)]
        if context.target in RUNS_IN_TRANSFORMERS:
            yield from (replace(finding, severity=Severity.ERROR) for finding in found)
        elif found:
            # Where no target is named, planc's own runtime is as likely: one note for all.
            more = f", and {counted(len(found) - 1, 'other rule')}" if found[1:] else ""
            yield replace(found[0], message=found[0].message + more)

    def _keys(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            if not rule.key.is_portable:
                yield self.code.found(
                    f"transformers can't take `{rule.key.text}` unchanged",
                    span=rule.key.span,
                    label="index sets, single layers and alternation are planc's own",
                    key=rule.key.text,
                    help=("alternation can be written out, one rule a name; planc's runtime takes it as it is",),
                )

    def _arguments(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            style = get(rule.style.name, rule.plan)
            if style is not None and dict(rule.style.arguments).items() - style.arguments.items():
                yield self.code.found(
                    f"transformers can't take `{rule.style.text}` unchanged",
                    span=rule.style.span,
                    label="a plan of transformers names a style and nothing more",
                    key=rule.key.text,
                )
