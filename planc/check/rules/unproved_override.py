"""PL400."""

from collections.abc import Iterator

from planc.check.overrides import departures, left_out, unwatched
from planc.check.places import counted, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.registry import create


@define("PL400", "unproved-override", Severity.UNKNOWN)
class UnprovedOverride(Rule):
    """Says where a plan departs from the model's own and nothing proves that the results stay the same.

    A style changes what flows out of a module and the gradients that flow back. Whether its neighbours expect that is
    a question of the whole dataflow. Where it can't be answered the verdict is unknown, never fine.

    Example:

        tp_plan:
          model.layers.*.self_attn.q_norm: replicate

    Use instead the model's own rule, or let `planc verify` compare results and gradients with one process.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.plan.defaults == "model" and next(context.rules(), None) is None:
            return
        for departure in departures(context):
            rule = departure.rule
            targets = unwatched(rule.plan, departure.targets, context)
            if not targets:
                continue  # the dataflow proves or refutes it, or says what it can't follow
            if create(rule.style, rule.plan) is None:
                continue  # an unknown style has an error of its own
            own = f"`{departure.own}`" if departure.own else "no style"
            yield self.code.found(
                f"`{rule.style.text}` stands where the model's own plan has {own}: not proved",
                span=rule.span,
                label=counted(len(targets), "target"),
                key=rule.key.text,
                targets=targets[:3],
                target_count=len(targets),
                notes=("whether results and gradients stay right isn't known from the dataflow",),
                help=("`planc verify` compares with one process",),
            )
        yield from self._left_out(context)

    def _left_out(self, context: CheckContext) -> Iterator[Diagnostic]:
        missing = {
            rule: names for rule, left in left_out(context).items() if (names := unwatched(rule.plan, left, context))
        }
        # A plan that does nothing is refused by PL112.
        if missing and (context.resolved.tp or context.resolved.ep):
            targets = [target for names in missing.values() for target in names]
            keys = [rule.key.text for rule in missing]
            more = f" and {len(keys) - 3} more" if keys[3:] else ""
            yield self.code.found(
                f"{counted(len(missing), 'rule')} of the model's own plan left out: not proved",
                span=size_span(context, "tp_size", "ep_size"),
                targets=tuple(targets[:3]),
                target_count=len(targets),
                notes=(f"left out: {', '.join(f'`{key}`' for key in keys[:3])}{more}",),
                help=("`planc verify` compares with one process",),
            )
