"""PL415."""

from collections.abc import Iterator

from planc.check.flow_findings import Fault, in_place_changes
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.registry import STYLES, get
from planc.syntax.plan import PlanRule


@define("PL415", "output-changed-in-place", Severity.NOTE)
class OutputChangedInPlace(Rule):
    """Says where the model changes in place what a style hands on, which transformers' own runtime can't train.

    transformers hands on the outputs of most styles as views that an autograd function made, and torch refuses to
    change those in place while it records gradients. Inference runs. planc's own runtime hands on tensors that may be
    changed, in training too. An error where transformers runs the plan: under the Trainer, and in a
    `DistributedConfig` that planc makes for it; and for a custom style, which planc's runtime runs as it is.

    Example, on Llama 4, which adds the routed experts' output to that of `shared_expert` by `out.add_(...)`:

        target: trainer
        tp_plan:
          model.layers.*.feed_forward.shared_expert.down_proj: rowwise

    Use instead: the plan by `planc.apply`, or no rule for this module.

    Source: `DTensor.to_local` and `_AllReduceForward`, transformers 5.24.0, `distributed/tensor_parallel.py`; torch's
    `Output 0 of _ToTorchTensor is a view and is being modified inplace`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for what, fault, rule in in_place_changes(context):
            # A custom style is the same object in both runtimes.
            if get(rule.style.name, rule.plan) is not STYLES.get(rule.style.name):
                yield self._found(what, fault, rule, Severity.ERROR, "both runtimes refuse", "inference runs in both")
            elif context.target != "torchrun":
                severity = Severity.ERROR if context.target == "trainer" else self.code.severity
                note = "inference runs in both runtimes, and planc's own trains it, too"
                yield self._found(what, fault, rule, severity, "transformers' own runtime refuses", note)

    def _found(self, what: str, fault: Fault, rule: PlanRule, severity: Severity, who: str, note: str) -> Diagnostic:
        trains = severity is Severity.ERROR and "planc" in note
        return self.code.found(
            f"{what}, which {who} in training",
            severity=severity,
            span=rule.span,
            label=f"`{rule.style.text}` from here",
            key=rule.key.text,
            targets=fault.targets[:3],
            target_count=len(fault.targets),
            notes=(note,),
            help=("run the plan by `planc.apply` to train",) if trains else (),
        )
