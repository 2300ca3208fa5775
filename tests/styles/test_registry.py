"""Names, arguments, and styles from elsewhere."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from planc.diagnostics.span import Span
from planc.ir.operations import CustomStyle, ShardParameter
from planc.layouts.layout import Layout
from planc.layouts.placement import StridedShard
from planc.styles import registry
from planc.styles.style import Lowering, Style
from planc.syntax.plan import PlanKind, StyleUse
from tests.styles.describing import MODULES, described, manifest_of

HERE = Span("plan.yaml", 1, 1, 1, 2)
LINEAR = described(MODULES["linear with bias"])


class Foreign:
    """What another package brings."""

    def shard_param(self, module: Any, param: str, mesh: Any) -> None: ...


@pytest.fixture(autouse=True)
def only_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        registry.STYLE_GROUP: {"theirs": EntryPoint("theirs", f"{__name__}:Foreign", registry.STYLE_GROUP)},
        registry.EP_GROUP: {"their_ep": EntryPoint("their_ep", f"{__name__}:Foreign", registry.EP_GROUP)},
    }
    monkeypatch.setattr(registry, "_entry_points", points.__getitem__)
    monkeypatch.setattr(registry, "_registered_styles", {})
    monkeypatch.setattr(registry, "_registered_ep_implementations", {})


@pytest.mark.parametrize(
    ("plan", "has", "has_not"),
    [
        ("tp", {"colwise", "moe_tp_experts", "theirs"}, {"ep_dispatch_experts", "free_full_weight"}),
        ("ep", {"grouped_gemm", "ep_dispatch_experts"}, {"moe_tp_experts", "keep_full_weight", "mla_kv_a_proj"}),
        ("fsdp", {"free_full_weight", "keep_full_weight"}, {"colwise", "theirs"}),
    ],
)
def test_names_of_a_plan(plan: PlanKind, has: set[str], has_not: set[str]) -> None:
    names = set(registry.names(plan))
    assert has <= names
    assert not has_not & names


def test_old_names_say_the_new_one() -> None:
    renamed = {name: cls.renamed_to for name, cls in registry.STYLES.items() if cls.renamed_to}
    assert renamed == {"colwise_rep": "colwise_gather_output", "rowwise_rep": "rowwise_split_input"}
    for old, new in renamed.items():
        to = Lowering(manifest_of(LINEAR), Layout(tp_size=2), "tp")
        both = [list(registry.STYLES[name or ""]().lower_module(LINEAR, to)) for name in (old, new)]
        assert both[0] == both[1]


@pytest.mark.parametrize(
    ("style", "arguments", "objection"),
    [
        ("packed_colwise", {"split_factor": 3}, None),
        ("packed_colwise", {"split_factor": 0}, "`split_factor` of `packed_colwise` is 1 to 256, got 0"),
        (
            "packed_rowwise",
            {"split_factor": 10**11},
            "`split_factor` of `packed_rowwise` is 1 to 256, got 100000000000",
        ),
        ("packed_rowwise", {"split_factor": "two"}, "`split_factor` of `packed_rowwise` is of type int, got `two`"),
        ("packed_colwise", {"parts": 2}, "`packed_colwise` has no argument `parts` (it takes `split_factor`)"),
        ("colwise", {"parts": 2}, "`colwise` has no argument `parts` (it takes none)"),
        ("theirs", {"anything": 1}, None),
    ],
)
def test_arguments(style: str, arguments: dict[str, int | str], objection: str | None) -> None:
    cls = registry.get(style)
    assert cls is not None
    assert cls.argument_objection(arguments) == objection
    made = registry.create(StyleUse(style, tuple(arguments.items()), HERE))
    assert (made is None) == (objection is not None)


def test_split_factor_reaches_the_placement() -> None:
    style = registry.create(StyleUse("packed_colwise", (("split_factor", 3),), HERE))
    assert style is not None
    assert style.placement(LINEAR.entry.parameters[0]) == StridedShard(0, 3)


def test_a_foreign_class_is_named_and_only_loaded_when_asked_for() -> None:
    cls = registry.get("theirs", "tp")
    assert cls is not None
    to = Lowering(manifest_of(LINEAR), Layout(tp_size=2), "tp")
    style = cls(width=3)
    assert list(style.lower_module(LINEAR, to)) == [CustomStyle("it", False, "tp", "theirs", (("width", 3),))]
    (weight, _) = LINEAR.entry.parameters
    assert list(style.lower_parameter("it.weight", weight, to)) == [
        CustomStyle("it.weight", True, "tp", "theirs", (("width", 3),))
    ]
    assert registry.style_object("theirs") is Foreign
    assert registry.get("nobodys") is None


def test_registration_in_python() -> None:
    class Mine(Style):
        name = "mine"
        plans = frozenset({"tp"})

        def placement(self, parameter: Any) -> StridedShard:
            return StridedShard(0, 5)

    registry.register("mine", Mine)
    registry.register("foreign", Foreign)
    assert registry.get("mine") is Mine
    assert registry.style_object("foreign") is Foreign
    to = Lowering(manifest_of(LINEAR), Layout(tp_size=2), "tp")
    assert list(Mine().lower_parameter("it.weight", LINEAR.entry.parameters[0], to)) == [
        ShardParameter("it.weight", "tp", StridedShard(0, 5))
    ]
    with pytest.raises(ValueError, match="planc's own"):
        registry.register("colwise", Foreign)


def test_ep_implementations() -> None:
    registry.register_ep_implementation("mine", Foreign)
    assert {"auto", "all_to_all", "all_reduce", "deepgemm_megamoe", "mine", "their_ep"} == set(
        registry.ep_implementation_names()
    )
    assert registry.ep_implementation_class("their_ep") is Foreign
    with pytest.raises(ValueError, match="transformers' own"):
        registry.register_ep_implementation("auto", Foreign)
