"""No false alarm: the released plan of every model type that builds gets no finding but those judged by hand."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from planc.check.expert_sizes import expert_counts
from tests.check.support import codes, context, manifest, report, text
from tests.models import buildable_model_types

FILE = Path(__file__).parent.parent / "cases" / "released.yaml"
JUDGED: dict[str, dict[str, dict[str, str]]] = YAML(typ="safe").load(FILE.read_text())
LAYOUTS = {
    "tp": {"tp_size": 2},
    "tp-ep": {"tp_size": 2, "ep_size": 2},
    "fsdp-ep": {"fsdp_size": 2, "ep_size": 2},
}
MODEL_TYPES = buildable_model_types()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_released_plan(model_type: str) -> None:
    facts = manifest(model_type)
    for name, sizes in LAYOUTS.items():
        checked = context(facts, sizes)
        if "ep_size" in sizes and not expert_counts(checked):
            continue
        found = report(checked)
        judged = JUDGED[name].get(model_type, {})
        assert set(codes(found, "error", "warning", "unknown")) == set(judged), f"{name}\n{text(found)}"


def test_nothing_is_judged_that_does_not_build() -> None:
    assert {model_type for judged in JUDGED.values() for model_type in judged} <= set(MODEL_TYPES)
