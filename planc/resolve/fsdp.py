"""What FSDP2 adds to its plan: tied embeddings are wrapped once, float32 modules get groups of their own."""

from planc.model.manifest import Manifest
from planc.resolve.index import NameIndex
from planc.resolve.model_rules import rules_at, source_text
from planc.syntax.plan import PlanRule


def fsdp_rules(
    rules: tuple[PlanRule, ...], manifest: Manifest, index: NameIndex
) -> tuple[tuple[PlanRule, ...], dict[str, str]]:
    """`rules` with transformers 5.24.0's own additions, weakest first, and the source texts of the additions.

    Source: `_resolve_tied_embed_lm_head_plan` in `transformers/distributed/fsdp.py`, and the float32 groups of
    `DistributedMixin._resolve_parallel_plans` in `mixin.py`.
    """
    file = manifest.file
    rules = _fold_tied_head(rules, manifest, index)
    if not rules or not file.float32_modules:
        return rules, {}
    name = f"<{file.class_name}: modules kept in float32>"
    added = rules_at(name, "fsdp", [(module, "free_full_weight") for module in file.float32_modules])
    named = {rule.key.text for rule in rules}
    return (*(rule for rule in added if rule.key.text not in named), *rules), {name: source_text(added)}


def _fold_tied_head(rules: tuple[PlanRule, ...], manifest: Manifest, index: NameIndex) -> tuple[PlanRule, ...]:
    """Drop the embedding's rule; a head that keeps its full weight hands its rule over to the embedding."""
    embedding, head = manifest.file.input_embeddings, manifest.file.output_embeddings
    if not manifest.file.ties or embedding is None or head is None:
        return rules
    kept = tuple(rule for rule in rules if index.names(rule.key) != (embedding,))
    of_head = [rule for rule in kept if index.names(rule.key) == (head,)]
    if not of_head or of_head[-1].style.name != "keep_full_weight":
        return kept
    moved = rules_at(of_head[-1].span.file, "fsdp", [(embedding, "keep_full_weight")])[0]
    moved = PlanRule("fsdp", moved.key, of_head[-1].style, of_head[-1].span, of_head[-1].origin)
    return (*(rule for rule in kept if rule not in of_head), moved)
