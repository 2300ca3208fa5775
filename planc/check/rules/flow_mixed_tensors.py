"""PL413."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL413", "mixed-tensors", Severity.ERROR)
class MixedTensors(Rule):
    """Looks for sharded parameters that are read by a module that computes on whole tensors.

    transformers 5.24.0 shards a parameter as a DTensor. A module whose style doesn't run it on local tensors mixes it
    with plain ones, which torch refuses.

    Example, on gpt-oss, whose attention sinks are a bare parameter:

        tp_plan:
          model.layers.*.self_attn.sinks: colwise

    Use instead a style on the owner too:

        tp_plan:
          model.layers.*.self_attn.sinks: colwise
          model.layers.*.self_attn: local_params
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.MIXED_TENSORS)
