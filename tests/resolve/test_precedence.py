"""planc's own keys, and who wins: later rules, a parameter's own rule, EP over TP; what is hidden is recorded."""

import pytest

from planc.model.manifest import Manifest, ManifestFile, ModuleEntry, ParameterEntry, Plans
from planc.resolve.layout import derive_layout
from planc.resolve.resolved import ResolvedPlan
from planc.resolve.resolver import resolve
from planc.syntax.parser import parse_text


def weight(*shape: int, name: str = "weight") -> ParameterEntry:
    return ParameterEntry(name=name, shape=shape, dtype="float32")


def linear(name: str, at: tuple[str, ...] = ("0-3",)) -> ModuleEntry:
    sizes = {"in_features": 8, "out_features": 8}
    return ModuleEntry(name=name, at=at, class_name="Linear", sizes=sizes, parameters=(weight(8, 8),))


@pytest.fixture
def manifest() -> Manifest:
    modules = (
        ModuleEntry(name="", class_name="Model"),
        ModuleEntry(name="layers", class_name="ModuleList"),
        ModuleEntry(name="layers.*", at=("0-3",), class_name="Layer"),
        linear("layers.*.gate_proj"),
        linear("layers.*.up_proj"),
        ModuleEntry(name="layers.*.experts", at=("0-3",), class_name="Experts", parameters=(weight(4, 8, name="w1"),)),
    )
    plans = Plans(
        tp={"layers.*.up_proj": "colwise", "layers.*.experts.w1": "packed_colwise", "layers.*.experts": "moe"},
        ep={"layers.*.experts": "ep_dispatch_experts", "layers.*.experts.w1": "grouped_gemm"},
    )
    return Manifest(ManifestFile(name="m", class_name="Model", modules=modules, plans=plans))


def resolved(manifest: Manifest, text: str) -> ResolvedPlan:
    plan, findings = parse_text(text, "plan.yaml")
    assert plan is not None and not findings
    return resolve(plan, manifest, derive_layout(plan))


def styles(result: ResolvedPlan, module: str) -> list[str | None]:
    """The styles of `layers.N.<module>.weight` for every layer."""
    found = [result.tp.get(f"layers.{layer}.{module}.weight") for layer in range(4)]
    return [assignment.style.name if assignment else None for assignment in found]


def test_index_sets_and_single_layers_override_the_models_rule(manifest: Manifest) -> None:
    result = resolved(manifest, "tp_size: 2\ntp_plan: {'layers.[0-1].up_proj': rowwise, layers.3.up_proj: replicate}")
    assert styles(result, "up_proj") == ["rowwise", "rowwise", "colwise", "replicate"]
    (hidden,) = result.tp["layers.0.up_proj.weight"].hides
    assert (hidden.key.text, hidden.style.name, hidden.origin) == ("layers.*.up_proj", "colwise", "model")


def test_alternation_names_each_alternative(manifest: Manifest) -> None:
    result = resolved(manifest, "tp_size: 2\ndefaults: none\ntp_plan: {'layers.*.{gate,up}_proj': rowwise}")
    assert styles(result, "gate_proj") == styles(result, "up_proj") == ["rowwise"] * 4
    (rule,) = result.rules["tp"]
    assert len(result.matches[rule]) == 8


def test_the_later_of_two_rules_wins(manifest: Manifest) -> None:
    both = "'layers.*.gate_proj': colwise, 'layers.[2-3].gate_proj': rowwise"
    assert styles(resolved(manifest, f"tp_size: 2\ntp_plan: {{{both}}}"), "gate_proj")[1:3] == ["colwise", "rowwise"]
    turned = "'layers.[2-3].gate_proj': rowwise, 'layers.*.gate_proj': colwise"
    assert styles(resolved(manifest, f"tp_size: 2\ntp_plan: {{{turned}}}"), "gate_proj") == ["colwise"] * 4


def test_a_parameters_own_rule_beats_a_later_one_on_its_module(manifest: Manifest) -> None:
    text = "tp_size: 2\ntp_plan: {layers.0.gate_proj.weight: rowwise, layers.0.gate_proj: colwise}"
    result = resolved(manifest, text)
    assert styles(result, "gate_proj")[0] == "rowwise"
    assert result.tp["layers.0.gate_proj"].style.name == "colwise"


def test_ep_displaces_tp_on_its_module_and_below(manifest: Manifest) -> None:
    result = resolved(manifest, "tp_size: 2\nep_size: 2")
    assert not any("experts" in name for name in result.tp)
    assert {rule.key.text: by.key.text for rule, by in result.displaced.items()} == {
        "layers.*.experts.w1": "layers.*.experts.w1",
        "layers.*.experts": "layers.*.experts",
    }
    assert result.ep["layers.0.experts.w1"].style.name == "grouped_gemm"


def test_an_ep_rule_on_one_layer_leaves_the_others_to_tp(manifest: Manifest) -> None:
    text = "tp_size: 2\nep_size: 2\ndefaults: none\ntp_plan: {'layers.*.experts': moe}\n"
    result = resolved(manifest, text + "ep_plan: {layers.1.experts: ep_dispatch_experts}")
    named = [name for name, assignment in result.tp.items() if not assignment.is_parameter]
    assert named == ["layers.0.experts", "layers.2.experts", "layers.3.experts"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tp_size: 2\ntp_plan: {}", []),
        ("tp_size: 2\ndefaults: none", []),
        ("tp_size: 1", []),
        ("tp_size: 2\ntp_plan: auto", ["up_proj", "up_proj.weight"]),
        ("tp_size: 2", ["up_proj", "up_proj.weight"]),
    ],
)
def test_which_defaults_apply(manifest: Manifest, text: str, names: list[str]) -> None:
    result = resolved(manifest, text)
    assert sorted(name.removeprefix("layers.0.") for name in result.tp if "0.up" in name) == names


@pytest.mark.parametrize(
    ("text", "world", "sizes"),
    [
        ("tp_plan: auto\nfsdp_size: 2", 8, (4, 1)),
        ("tp_plan: auto", None, (1, 1)),
        ("tp_plan: auto\nfsdp_size: 3", 16, (1, 1)),
        ("fsdp_size: 2", 8, (1, 1)),
        ("tp_size: 4\nenable_expert_parallel: true", None, (4, 4)),
        ("tp_size: 4\nep_size: 8\nenable_expert_parallel: true\nfsdp_size: 2", None, (4, 8)),
        ("tp_size: 0", None, (1, 1)),
    ],
)
def test_sizes_that_are_not_given(text: str, world: int | None, sizes: tuple[int, int]) -> None:
    plan, _ = parse_text(text, "plan.yaml")
    assert plan is not None
    layout = derive_layout(plan, world)
    assert (layout.tp_size, layout.ep_size) == sizes


def test_the_later_of_two_rules_on_a_parameter_itself_wins(manifest: Manifest) -> None:
    own = "'layers.*.gate_proj.weight': rowwise, 'layers.[0-1].gate_proj.weight': colwise"
    rules = f"{own}, 'layers.*.gate_proj': all_reduce"
    result = resolved(manifest, f"tp_size: 2\ntp_plan: {{{rules}}}")
    assert styles(result, "gate_proj") == ["colwise", "colwise", "rowwise", "rowwise"]
    assert [rule.style.name for rule in result.tp["layers.0.gate_proj.weight"].hides] == ["all_reduce", "rowwise"]
