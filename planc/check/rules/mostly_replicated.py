"""PL501."""

from collections.abc import Iterator
from itertools import groupby

from planc.check.coverage import Share, coverage, parameter_shares
from planc.check.expert_sizes import expert_counts, legal_sizes
from planc.check.places import counted, listed, size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.check.sharding import not_known
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Coverage, Diagnostic, Severity
from planc.diagnostics.units import gigabytes
from planc.styles.registry import create
from planc.syntax.matching import generic_name

MOST = 0.5
UNEVEN = 1.2
SHOWN = 5


@define("PL501", "mostly-replicated", Severity.WARNING)
class MostlyReplicated(Rule):
    """Looks for plans that leave most of the model's bytes whole on every rank of `tp` and `ep`.

    The model loads, the ranks compute, and each of them holds nearly all of it. Often the experts have no rule: a plan
    for dense layers does little for a mixture of experts, and some models ship a TP plan for embedding and head alone.

    Example, on gpt-oss:

        tp_size: 8

    Use instead:

        tp_size: 8
        ep_size: 8
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        assignments = [*context.resolved.tp.values(), *context.resolved.ep.values()]
        # A rule whose style can't be read shards nothing, and has a finding of its own; so has one of which nothing is
        # known.
        if not assignments or any(create(a.style, a.rule.plan) is None for a in assignments) or not_known(context):
            return
        cut = {found.name for found in context.sharded}
        shares = parameter_shares(context)
        whole = [share for share in shares if share.name not in cut]
        total = sum(share.whole for share in shares)
        left = sum(share.whole for share in whole)
        if not total or left / total <= MOST:
            return
        sums = coverage(context, shares)
        # FSDP may deal out what tp and ep leave whole: then no rank holds more than its part.
        if sums.bytes_per_rank > UNEVEN * sums.bytes_even:
            yield self._found(context, sums, whole, 1 - left / total)

    def _found(self, context: CheckContext, sums: Coverage, whole: list[Share], part: float) -> Diagnostic:
        layout = context.layout
        sizes = [f"{name}={getattr(layout, name)}" for name in ("tp_size", "ep_size") if getattr(layout, name) > 1]
        return self.code.found(
            f"{_percent(part)} of the parameters are sharded over {' and '.join(sizes)}: "
            f"{gigabytes(sums.bytes_per_rank)} per rank, and an even split would hold {gigabytes(sums.bytes_even)}",
            span=size_span(context, "tp_size", "ep_size"),
            label=f"of {gigabytes(sums.bytes_total)} in all",
            labels=size_labels(context, "ep_size") if layout.tp_size > 1 else (),
            targets=tuple(share.name for share in _largest(whole)[:3]),
            target_count=len(whole),
            notes=tuple(_by_name(whole)),
            help=(self._advice(context),),
        )

    def _advice(self, context: CheckContext) -> str:
        sizes = legal_sizes(context)
        if context.layout.ep_size == 1 and expert_counts(context) and context.manifest.file.plans.ep:
            if sizes:
                return f"the model has an EP plan: deal its experts out with ep_size={listed(sizes)}"
            return "the model has an EP plan: deal its experts out with `ep_size`, on a mesh that allows it"
        return "write rules for the largest of them, or use the ranks for `fsdp_size`, which shards every parameter"


def _percent(part: float) -> str:
    if part == 0:
        return "none"
    return f"about {part:.0%}".replace("%", " %") if part >= 0.005 else "less than 1 %"


def _largest(shares: list[Share]) -> list[Share]:
    return sorted(shares, key=lambda share: -share.whole)


def _by_name(whole: list[Share]) -> Iterator[str]:
    """The largest groups of like parameters."""
    named = sorted(whole, key=lambda share: generic_name(share.name))
    groups = [(name, list(group)) for name, group in groupby(named, key=lambda share: generic_name(share.name))]
    groups.sort(key=lambda group: (-sum(share.whole for share in group[1]), group[0]))
    for name, shares in groups[:SHOWN]:
        size = gigabytes(sum(share.whole for share in shares))
        yield f"whole on every rank: `{name}`, {counted(len(shares), 'parameter')}, {size}"
    if groups[SHOWN:]:
        rest = sum(share.whole for _, shares in groups[SHOWN:] for share in shares)
        yield f"and {counted(len(groups) - SHOWN, 'other name')}, {gigabytes(rest)}"
