"""PL204."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.expert_sizes import legal_sizes
from planc.check.places import layers_of, listed, size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL204", "experts-not-divisible", Severity.ERROR)
class ExpertsNotDivisible(Rule):
    """Looks for experts that `ep_size` doesn't divide.

    Each rank of an expert group owns a block of whole experts, all of the same number.

    Example, with 128 experts:

        fsdp_size: 6
        ep_size: 6

    Use instead a divisor of 128:

        fsdp_size: 8
        ep_size: 8

    Source: `MoEParamShard.shard_param`, transformers 5.24.0, `distributed/expert_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        size = context.layout.ep_size
        # Module names by their number of experts, each once however many parameters it has.
        uneven: dict[int, dict[str, None]] = defaultdict(dict)
        for shard in context.sharded:
            module = shard.module
            holds_experts = module.entry.experts is not None or "num_experts" in module.entry.sizes
            if shard.axis == "ep" and shard.dim == 0 and holds_experts and shard.size % size:
                uneven[shard.size].setdefault(module.name)
        for count, names in uneven.items():
            targets = list(names)
            yield self.code.found(
                f"{count} experts can't be dealt out evenly over ep_size={size}",
                span=size_span(context, "ep_size", "enable_expert_parallel", "tp_size"),
                label=f"{count} / {size} = {count / size:.2f} experts a rank",
                labels=size_labels(context, "fsdp_size", "tp_size"),
                targets=tuple(targets[:3]),
                target_count=len(targets),
                notes=(f"`{targets[0]}`" + (f" and its like in {layers_of(targets)}" if targets[1:] else ""),),
                help=(self._legal(context, count),),
            )

    def _legal(self, context: CheckContext, count: int) -> str:
        legal = legal_sizes(context)
        if legal:
            return f"ep_size of {listed(legal)} is legal on this mesh"
        layout = context.layout
        return (
            f"no ep_size > 1 divides both {count} experts and fsdp_size * tp_size = "
            f"{layout.fsdp_size * layout.tp_size}: change the mesh, or leave ep_size at 1"
        )
