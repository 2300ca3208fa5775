"""PL306."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.layouts.placement import Shard, StridedShard
from planc.resolve.resolved import Assignment
from planc.styles.registry import create
from planc.syntax.plan import PlanKind

# The plan that shards a parameter, and how.
Cut = tuple[PlanKind, Shard | StridedShard]


@define("PL306", "tied-parameters-disagree", Severity.ERROR)
class TiedParameters(Rule):
    """Looks for tied parameters that get different placements.

    A tied head and embedding are one tensor, and it lies where the embedding's rule puts it: weights are tied again
    once they are loaded. The head keeps its own style, and computes with a tensor that isn't what this style expects.

    Example, on Gemma 2, whose head is tied:

        tp_plan:
          lm_head: colwise_gather_output
          model.embed_tokens: replicate

    Use instead the same cut for both, a slice of the vocabulary:

        tp_plan:
          lm_head: colwise_gather_output
          model.embed_tokens: embedding_rowwise

    Styles that run a module under DTensor's rules (`embedding_rowwise`, `embedding_colwise`) take any cut.

    Source: `_finalize_model_loading`, transformers 5.24.0, `modeling_utils.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for names in context.manifest.file.ties:
            assignments = tuple(context.resolved.ep.get(name) or context.resolved.tp.get(name) for name in names)
            cuts = tuple(_cut(name, assignment, context) for name, assignment in zip(names, assignments, strict=True))
            crosses = all(assignments) and len({a.rule.plan for a in assignments if a is not None}) == 2
            if cuts[0] != cuts[1] and (crosses or self._matters(names, assignments[0], context)):
                yield self._disagree(names, cuts, assignments)

    def _matters(self, names: tuple[str, str], tied: Assignment | None, context: CheckContext) -> bool:
        """Whether the tied module can't take the tensor as its owner has it: by the dataflow, where it is judged."""
        if context.flow.is_judged:
            modules = {name.rpartition(".")[0] for name in names}
            return any(
                problem.module in modules
                or problem.parameter in names
                or any(origin.target in {*names, *modules} for origin in problem.origins)
                for problem, _ in context.flow.problems
            )
        module = context.manifest.parameters[names[0]][0]
        hook = context.resolved.plan(tied.rule.plan).get(module.name) if tied is not None else None
        style = context.style(hook) if hook else None
        return style is None or not style.type(module).distributed

    def _disagree(
        self, names: tuple[str, str], cuts: tuple[Cut | None, ...], assignments: tuple[Assignment | None, ...]
    ) -> Diagnostic:
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


def _cut(name: str, assignment: Assignment | None, context: CheckContext) -> Cut | None:
    """The axis of the plan that shards a parameter by its own rule, and how; None where it stays whole."""
    if assignment is None:
        return None
    module, entry = context.manifest.parameters[name]
    style = create(assignment.style, assignment.rule.plan)
    if style is None or style.parameter_objection(module, entry) is not None:
        return None
    placement = style.placement(entry)
    return (assignment.rule.plan, placement) if isinstance(placement, Shard | StridedShard) else None


def _said(cut: Cut | None, assignment: Assignment | None) -> str:
    if cut is not None and assignment is not None:
        where = " over ep" if cut[0] == "ep" else ""
        return f"is sharded on dim {cut[1].dim}{where} (`{assignment.style.text}`)"
    return f"stays whole (`{assignment.style.text}`)" if assignment else "stays whole (no rule names it)"
