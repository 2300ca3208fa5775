"""Where a plan cuts the features of attention heads, and whether whole heads come out.

Judged by the plan: only a projection whose output stays sharded is viewed by heads on each rank. One that is gathered
or replicated has no constraint (phi-3, olmoe).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from planc.check.places import counted, divisors, layers_of, listed, size_labels
from planc.check.rule import CheckContext
from planc.check.sharding import Hooked, is_last
from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic
from planc.model.manifest import Attention, Heads, Module
from planc.syntax.plan import PlanRule

KEY_VALUE = ("key", "value")


@dataclass(frozen=True, slots=True)
class HeadCut:
    """Modules of one rule whose sharded output (input, for role `output`) is `heads`, which the axis doesn't divide."""

    rule: PlanRule
    heads: Heads
    attention: Attention | None
    targets: tuple[str, ...]
    divisor: int

    @property
    def is_key_value(self) -> bool:
        """Whether the heads are KV heads, fewer than the query's."""
        few = self.attention is not None and self.attention.num_key_value_heads < self.attention.num_heads
        return self.heads.role in KEY_VALUE and (few or self.attention is None)


def head_cuts(context: CheckContext) -> Iterator[HeadCut]:
    """Every cut through a head, in the order of the resolved plan."""
    size = context.layout.tp_size
    groups: dict[tuple[PlanRule, Heads, Attention | None], list[str]] = defaultdict(list)
    cut_by_query: set[str] = set()
    # What divides every head count that the plan cuts in one attention module: legal for all of its projections.
    divisors_of: dict[str, int] = defaultdict(int)
    owners: dict[str, str] = {}
    for hooked in context.hooked:
        if hooked.axis != "tp":
            continue
        owner, attention = attention_above(hooked.module, context)
        heads = sharded_heads(hooked, attention)
        if heads is None:
            continue
        divisors_of[owner] = gcd(divisors_of[owner], heads.count) if owner else heads.count
        if heads.count % size == 0:
            continue
        # The output projection takes what the query gives: one root cause, reported at the query.
        if heads.role == "output" and owner in cut_by_query:
            continue
        if heads.role in ("query", "fused"):
            cut_by_query.add(owner)
        groups[hooked.assignment.rule, heads, attention].append(hooked.module.name)
        owners[hooked.module.name] = owner
    for (rule, heads, attention), targets in groups.items():
        shared = [divisors_of[owners[target]] for target in targets if owners[target]]
        yield HeadCut(rule, heads, attention, tuple(targets), gcd(heads.count, *shared))


def describe(cut: HeadCut, code: Code, context: CheckContext) -> Diagnostic:
    """The finding of DESIGN: heads and ranks, features and what each rank would get, legal sizes."""
    size, heads = context.layout.tp_size, cut.heads
    name = cut.targets[0].rpartition(".")[2]
    kind = "KV head" if cut.is_key_value else "head"
    features = heads.count * heads.size
    per_rank = -(-features // size)
    return code.found(
        f"`{name}` splits {counted(heads.count, kind)} over tp_size={size}",
        span=cut.rule.key.span,
        label=f"{counted(len(cut.targets), 'module')}, {features} features = "
        f"{counted(heads.count, 'head')} x {heads.size}; each rank would get {per_rank}, "
        f"{_share(Fraction(per_rank, heads.size))}",
        labels=size_labels(context, "tp_size"),
        key=cut.rule.key.text,
        targets=cut.targets[:3],
        target_count=len(cut.targets),
        notes=_which_layers(cut, context),
        help=(
            f"tp_size legal: {listed(divisors(cut.divisor))}",
            "or gather all of the attention's projections (`colwise_gather_output`) and split the input of the one "
            "behind them (`rowwise_split_input`)" + _norms_too(cut, context),
        ),
    )


def _norms_too(cut: HeadCut, context: CheckContext) -> str:
    """Norms beside the projection whose gradient is summed because they see this rank's heads: no longer so."""
    owner = cut.targets[0].rpartition(".")[0]
    norms = [
        f"`{name.rpartition('.')[2]}`"
        for name, given in context.resolved.tp.items()
        if name.rpartition(".")[0] == owner and given.style.name == "replicated_with_grad_allreduce"
    ]
    if not norms:
        return ""
    return f"; {' and '.join(norms)} then {'see' if norms[1:] else 'sees'} all heads: `replicate`"


def attention_above(module: Module, context: CheckContext) -> tuple[str, Attention | None]:
    """The nearest module at or above `module` that is an attention module, and its facts."""
    name = module.name
    while name:
        found = context.manifest.modules.get(name)
        if found is not None and found.entry.attention is not None:
            return name, found.entry.attention
        name = name.rpartition(".")[0]
    return "", None


def sharded_heads(hooked: Hooked, attention: Attention | None) -> Heads | None:
    """The heads that the sharded side of the module consists of."""
    heads = hooked.module.entry.heads or _by_width(hooked, attention)
    if heads is None:
        return None
    side = hooked.type.input if heads.role == "output" else hooked.type.output
    return heads if is_last(side) else None


def _by_width(hooked: Hooked, attention: Attention | None) -> Heads | None:
    """Without a recorded run: a Linear of an attention module whose width is that of its heads."""
    if attention is None:
        return None
    sizes, head_dim = hooked.module.entry.sizes, attention.head_dim
    if is_last(hooked.type.input) and sizes.get("in_features") == attention.num_heads * head_dim:
        return Heads(role="output", count=attention.num_heads, size=head_dim)
    width = sizes.get("out_features")
    if width == attention.num_heads * head_dim:
        return Heads(role="query", count=attention.num_heads, size=head_dim)
    if width == attention.num_key_value_heads * head_dim:
        return Heads(role="key", count=attention.num_key_value_heads, size=head_dim)
    return None


def _share(heads: Fraction) -> str:
    if heads == Fraction(1, 2):
        return "half a head"
    return f"{heads} of a head" if heads < 1 else f"{float(heads):.3g} heads"


def _which_layers(cut: HeadCut, context: CheckContext) -> tuple[str, ...]:
    """The affected layers, and of what kind they are where the config says so."""
    layers = layers_of(cut.targets)
    list_ = context.manifest.file.layers
    total = len(context.names.get(f"{list_}.*", ())) if list_ else 0
    numbers = [int(t.removeprefix(f"{list_}.").split(".")[0]) for t in cut.targets if t.startswith(f"{list_}.")]
    # Heads of an encoder, or of a tower, lie in none of the layers that the manifest knows.
    if not layers or not total or not numbers or len(numbers) == total:
        return ()
    kinds = context.layer_kinds
    found = {kinds[number] for number in numbers if number < len(kinds)}
    of_kind = f", the {found.pop().replace('_attention', '-attention')} layers" if len(found) == 1 else ""
    owner = cut.targets[0].rpartition(".")[0].rpartition(".")[2]
    return (f"only {layers} ({len(numbers)} of {total}{of_kind}) have such a `{owner}`",)
