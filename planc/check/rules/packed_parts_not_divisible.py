"""PL304."""

from collections.abc import Iterator
from math import ceil

from planc.check.packed_cuts import PackedCut, packed_cuts
from planc.check.places import counted, divisors, listed, size_labels
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL304", "packed-parts-not-divisible", Severity.ERROR)
class PackedPartsNotDivisible(Rule):
    """Looks for packed parts that don't come out whole.

    `packed_colwise` takes the parts to be of one width: parts of different widths are cut in the wrong places. Parts
    that alternate in groups may only be cut between groups.

    Example, a weight `[q | k | v]` of 4096 + 1024 + 1024 features:

        tp_plan:
          model.layers.*.self_attn.qkv_proj: packed_colwise(split_factor=3)

    Use instead:

        tp_plan:
          model.layers.*.self_attn.qkv_proj: colwise_gather_output
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for cut in packed_cuts(context):
            parts, group = cut.packing.parts, cut.packing.group
            if cut.packing.layout == "blocks" and cut.parts == len(parts) and len(set(parts)) > 1:
                yield self._found(
                    cut,
                    context,
                    f"`{cut.rule.style.text}` takes {cut.parts} parts of one width, and they are "
                    f"{' + '.join(map(str, parts))}",
                    "`colwise_gather_output` gathers the output again, so that any cut will do",
                )
            elif cut.packing.layout == "interleaved" and group and cut.parts == 1 and not cut.has_heads:
                size = context.layout.size("tp" if cut.rule.plan == "tp" else "ep")
                if ceil(cut.width / size) % group:
                    groups = cut.width // group
                    yield self._found(
                        cut,
                        context,
                        f"{groups} groups of {group} features can't be cut over {cut.rule.plan}_size={size} "
                        "without cutting through a group",
                        f"legal: {listed(divisors(groups, 64))}",
                    )

    def _found(self, cut: PackedCut, context: CheckContext, message: str, help_: str) -> Diagnostic:
        return self.code.found(
            message,
            span=cut.rule.key.span,
            label=f"{counted(len(cut.targets), 'parameter')} of {cut.width} features",
            labels=size_labels(context, "tp_size"),
            key=cut.rule.key.text,
            targets=cut.targets[:3],
            target_count=len(cut.targets),
            help=(help_,),
        )
