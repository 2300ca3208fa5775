"""PL306."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.check.sharding import Sharded
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.resolve.resolved import Assignment


@define("PL306", "tied-parameters-disagree", Severity.ERROR)
class TiedParameters(Rule):
    """Looks for tied parameters that get different placements.

    A tied head and embedding are one tensor. Sharded for one and whole for the other, whichever is applied last wins,
    and the other module computes with a tensor that isn't what its style expects.

    Example, on Gemma 2, whose head is tied:

        tp_plan:
          lm_head: colwise_gather_output
          model.embed_tokens: replicate

    Use instead the same cut for both, a slice of the vocabulary:

        tp_plan:
          lm_head: colwise_gather_output
          model.embed_tokens: embedding_rowwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if not context.is_on("tp"):
            return
        cuts = {found.name: found for found in context.sharded if found.axis == "tp"}
        for tied, shared in context.manifest.file.ties:
            left, right = cuts.get(tied), cuts.get(shared)
            if _placement(left) != _placement(right):
                yield self._disagree((tied, shared), (left, right), context)

    def _disagree(
        self, names: tuple[str, str], cuts: tuple[Sharded | None, Sharded | None], context: CheckContext
    ) -> Diagnostic:
        assignments = [context.resolved.tp.get(name) for name in names]
        # The user's rule is the one to change; without one, the rule that exists.
        ruled = sorted((a for a in assignments if a is not None), key=lambda a: a.rule.origin != "user")
        said = [f"`{name}` {_said(cut, a)}" for name, cut, a in zip(names, cuts, assignments, strict=True)]
        first = ruled[0]
        others = tuple(Label(a.rule.span, f"`{a.target}` from here") for a in ruled[1:])
        return self.code.found(
            f"`{names[0]}` and `{names[1]}` are tied, one tensor, and the plan gives them different placements",
            span=first.rule.span,
            label=f"`{first.target}` from here",
            labels=others,
            key=first.rule.key.text,
            targets=names,
            target_count=2,
            notes=(f"{said[0]}; {said[1]}",),
            help=("give both one cut: `colwise_gather_output` for the head, `embedding_rowwise` for the embedding",),
        )


def _placement(cut: Sharded | None) -> tuple[int, int] | None:
    return (cut.dim, cut.parts) if cut else None


def _said(cut: Sharded | None, assignment: Assignment | None) -> str:
    if cut is not None:
        return f"is sharded on dim {cut.dim} (`{cut.assignment.style.text}`)"
    return f"stays whole (`{assignment.style.text}`)" if assignment else "stays whole (no rule names it)"
