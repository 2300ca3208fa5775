"""A tied head and embedding are one tensor: what check says of each pair of their styles is what transformers does."""

from itertools import product

import pytest

from planc.diagnostics.diagnostic import Severity
from planc.layouts.layout import Layout
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.lower import lower
from planc.program.placements import RankPlacements
from planc.resolve.resolver import resolve
from planc.syntax.arguments import plan_from_mapping
from planc.verify.truth import TruthBench
from tests.conformance.predictions import judge
from tests.conformance.truth_table import config_for

EMBEDDING = (None, "embedding_rowwise", "embedding_colwise", "packed_colwise", "replicate")
HEAD = (
    None, "colwise_gather_output", "rowwise_split_input", "embedding_rowwise", "embedding_colwise", "packed_rowwise",
    "grouped_gemm", "replicate",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> TruthBench:
    found = TruthBench.of(config_for("gemma2", 2), 2)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def manifest(bench: TruthBench) -> Manifest:
    return Manifest(build_manifest(bench.copy.model, "gemma2"))


def rules_for(bench: TruthBench, embedding: str | None, head: str | None) -> dict[str, str]:
    rules = {**bench.copy.model._tp_plan, "model.embed_tokens": embedding, "lm_head": head}
    return {key: style for key, style in rules.items() if style is not None}


def test_check_agrees_with_the_truth_on_every_pair(bench: TruthBench, manifest: Manifest) -> None:
    right = 0
    for embedding, head in product(EMBEDDING, HEAD):
        rules = rules_for(bench, embedding, head)
        is_right = bench.judge(rules) == "right"
        findings = judge(manifest, rules, 2)
        errors = [finding.code for finding in findings if finding.severity is Severity.ERROR]
        assert not any(finding.severity is Severity.UNKNOWN for finding in findings), (embedding, head)
        assert (not errors) == is_right, (embedding, head, errors)
        right += is_right
    assert 10 <= right <= 20


@pytest.mark.parametrize(("embedding", "head", "dim"), [("embedding_rowwise", "embedding_colwise", 0),
                                                        ("embedding_colwise", "embedding_rowwise", 1)])  # fmt: skip
def test_the_owner_places_the_tensor(
    embedding: str, head: str, dim: int, bench: TruthBench, manifest: Manifest
) -> None:
    rules = rules_for(bench, embedding, head)
    plan, found = plan_from_mapping({"defaults": "none", "tp_size": 2, "tp_plan": rules})
    assert plan is not None, found
    program = lower(plan, resolve(plan, manifest, Layout(tp_size=2)), manifest)
    placements = RankPlacements(program, manifest)
    whole = manifest.parameters["model.embed_tokens.weight"][1].shape
    half = tuple(size // 2 if place == dim else size for place, size in enumerate(whole))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert placements.region(name, 0).shape == half


@pytest.mark.parametrize(("embedding", "head"), [("embedding_rowwise", "embedding_colwise"),
                                                 ("embedding_colwise", "embedding_rowwise"),
                                                 ("replicate", "packed_rowwise")])  # fmt: skip
def test_the_program_computes_what_one_process_does(embedding: str, head: str, bench: TruthBench) -> None:
    import planc

    plan = {"tp_size": 2, "tp_plan": {"model.embed_tokens": embedding, "lm_head": head}}
    assert planc.verify("gemma2", plan).verdict == "proved"
