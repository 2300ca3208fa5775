"""Plans from Python and from the command line."""

from typing import Any

import pytest

from planc.diagnostics.span import Span
from planc.syntax.arguments import plan_from_mapping, with_overrides
from planc.syntax.parser import parse_text
from planc.syntax.plan import Plan
from tests.syntax.helpers import without_places

MAPPING: dict[str, Any] = {
    "tp_size": 2,
    "fsdp_cpu_offload": True,
    "ep_size": None,
    "tp_plan": {"model.layers.*.q_proj": "colwise", "a.[0-2,5].{b,c}": "packed_colwise(split_factor=2)"},
    "ep_plan": {},
    "require": ["ep_size <= 8"],
}


def test_a_mapping_is_a_plan_with_places() -> None:
    plan, found = plan_from_mapping(MAPPING)
    assert not found
    assert plan is not None
    assert plan.file == "<arguments>"
    lines = plan.sources["<arguments>"].split("\n")
    for rule, (key, style) in zip(plan.tp_plan.rules, MAPPING["tp_plan"].items(), strict=True):
        for span, text in ((rule.key.span, key), (rule.style.span, style)):
            assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == text
    assert plan.sizes["tp_size"].value == 2
    assert plan.options["fsdp_cpu_offload"].value is True
    assert plan.ep_plan.state == "rules"
    assert [r.text for r in plan.require] == ["ep_size <= 8"]


def test_a_bare_mapping_is_a_tp_plan() -> None:
    plan, found = plan_from_mapping({"lm_head": "colwise"})
    assert not found
    assert plan is not None
    assert [r.key.text for r in plan.tp_plan.rules] == ["lm_head"]


def test_an_empty_mapping_is_a_plan_that_says_nothing() -> None:
    plan, found = plan_from_mapping({})
    assert not found
    assert without_places(plan) == without_places(Plan())


LOOP: dict[str, Any] = {}
LOOP["tp_plan"] = LOOP


@pytest.mark.parametrize(
    ("mapping", "code"),
    [
        ({"tp_size": "2"}, "PL009"),
        ({"tp_size": 2.0}, "PL009"),
        ({"tp_size": True}, "PL009"),
        ({"tp_size": object()}, "PL009"),
        ({"tp_size": 10**30}, "PL010"),
        ({"tp_size": 2, 3: 4}, "PL008"),
        ({"tp_sise": 2}, "PL008"),
        ({"tp_plan": {"a\nb": "colwise"}}, "PL021"),
        ({"tp_plan": {"a": None}}, "PL009"),
        ({"tp_plan": {"a": "x\ud800"}}, "PL001"),
        (LOOP, "PL005"),
    ],
)
def test_wrong_mappings(mapping: dict[str, Any], code: str) -> None:
    _, found = plan_from_mapping(mapping)
    assert [f.code for f in found] == [code]
    assert "object at 0x" not in found[0].message.replace("`<object object at 0x", "")


LINE = "planc check m p.yaml --tp-size 4 --ep-size=16 --target trainer --fsdp-cpu-offload --tp-size 8"


def test_overrides_stand_over_the_file_and_point_into_the_command_line() -> None:
    plan, _ = parse_text("tp_size: 2\nfsdp_size: 2\nep_implementation: auto\n", "p.yaml")
    assert plan is not None
    sizes = {"tp_size": 8, "ep_size": 16, "pp_size": 3}
    over = with_overrides(plan, sizes, {"target": "trainer", "fsdp_cpu_offload": True}, LINE)
    assert {name: size.value for name, size in over.sizes.items()} == {"fsdp_size": 2, **sizes}
    assert over.options["ep_implementation"].span.file == "p.yaml"
    places = {**over.sizes, **over.options}
    shown = {name: LINE[s.span.column - 1 : s.span.end_column - 1] for name, s in places.items() if s.span.is_virtual}
    assert shown == {
        "tp_size": "8",
        "ep_size": "16",
        "pp_size": LINE,
        "target": "trainer",
        "fsdp_cpu_offload": "--fsdp-cpu-offload",
    }
    assert over.sizes["tp_size"].span == Span("<command line>", 1, len(LINE), 1, len(LINE) + 1)
    assert over.sources == {"p.yaml": plan.sources["p.yaml"], "<command line>": LINE}
