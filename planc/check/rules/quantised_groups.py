"""PL305."""

from collections import defaultdict
from collections.abc import Iterator
from math import ceil

from planc.check.places import counted, divisors, listed, size_labels
from planc.check.quantised import Grain, grains
from planc.check.rule import CheckContext, Rule
from planc.check.sharding import Sharded
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import PlanRule


@define("PL305", "quantised-group-cut", Severity.ERROR)
class QuantisedGroups(Rule):
    """Looks for shards that end inside a quantisation group.

    A quantised weight has one scale for a group of features (AWQ, GPTQ: `group_size` input features; FP8: a block of
    both dims), and packs several values into one number. A rank whose block ends inside a group would need half a
    scale; the kernels refuse it, or read the wrong one. A dim of one group only can't be cut at all: its one scale
    goes to the first rank, and the others get a scale of shape (0, n).

    Example, with groups of 128 and 29568 = 231 x 128 input features:

        tp_size: 2
        tp_plan:
          model.layers.*.mlp.down_proj: rowwise

    Use instead a size that divides 231, keep the module whole, or pad the weight when it is quantised.

    Source: `AwqQuantizer`, `GPTQQuantizer` and `FP8Linear`, transformers 5.24.0, `integrations/`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        found: dict[tuple[PlanRule, Grain, int, int], list[str]] = defaultdict(list)
        for shard in context.sharded:
            ranks = context.layout.size(shard.axis)
            for grain in grains(shard, context):
                if ranks > 1 and self._is_cut(shard, grain, ranks):
                    found[shard.assignment.rule, grain, shard.size // shard.parts, ranks].append(shard.name)
        for (rule, grain, width, ranks), targets in found.items():
            yield self._cut(rule, grain, width, ranks, targets, context)

    def _is_cut(self, shard: Sharded, grain: Grain, ranks: int) -> bool:
        width = shard.size // shard.parts
        return ceil(width / ranks) % grain.size != 0

    def _cut(
        self, rule: PlanRule, grain: Grain, width: int, ranks: int, targets: list[str], context: CheckContext
    ) -> Diagnostic:
        groups, rest = divmod(width, grain.size)
        name = targets[0].removesuffix(".weight").rpartition(".")[2]
        size = f"{rule.plan}_size"
        unit = "group" if width == grain.size else "groups"
        legal = divisors(groups, 64) if not rest else [1]
        return self.code.found(
            f"{width} / {grain.size} = {width / grain.size:g} {unit} of {grain.size} {grain.what} of `{name}` "
            f"can't be cut over {size}={ranks}",
            span=rule.key.span,
            label=f"{counted(len(targets), 'module')}; each rank would get {ceil(width / ranks)} features, "
            f"{ceil(width / ranks) / grain.size:g} groups",
            labels=size_labels(context, size),
            key=rule.key.text,
            targets=tuple(targets[:3]),
            target_count=len(targets),
            notes=(f"quantisation method `{grain.method}`",),
            help=(f"{size} legal: {listed(legal)}; or keep the module whole: `replicate`",),
        )
