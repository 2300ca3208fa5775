"""Plan files that are right: what they mean, and where each token stands."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planc.diagnostics.span import Span
from planc.syntax.fields import FIELDS
from planc.syntax.parser import parse_plan, parse_text
from planc.syntax.plan import Plan, PlanSection, Spanned
from tests.syntax.helpers import without_places
from tests.syntax.strategies import KEYS, STYLES

WHOLE = """\
model: Qwen/Qwen3-30B-A3B       # optional
defaults: none
target: trainer
tp_size: 2
fsdp_size: 0x4
ep_size:
ep_implementation: "all_to_all"
fsdp_cpu_offload: true
tp_plan:
  model.layers.*.self_attn.q_proj: colwise
  model.layers.[0-2].mlp.{gate,up}_proj: colwise
ep_plan: {}
fsdp_plan:
require:
  - num_key_value_heads % tp_size == 0
  - >-
    ep_size <=
    8
"""


def read(text: str, file: str = "plan.yaml") -> Plan:
    plan, found = parse_text(text, file)
    assert not found
    assert plan is not None
    return plan


def at(text: str, span: Span) -> str:
    """What stands at `span`, which is on one line."""
    assert span.line == span.end_line
    return text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]


def styles(section: PlanSection) -> dict[str, str]:
    return {rule.key.text: rule.style.text for rule in section.rules}


def test_every_field() -> None:
    plan = read(WHOLE)
    assert plan.file == "plan.yaml"
    assert plan.sources == {"plan.yaml": WHOLE}
    assert plan.model == Spanned("Qwen/Qwen3-30B-A3B", Span("plan.yaml", 1, 8, 1, 26))
    assert plan.defaults == "none"
    assert {name: size.value for name, size in plan.sizes.items()} == {"tp_size": 2, "fsdp_size": 4}
    assert {name: option.value for name, option in plan.options.items()} == {
        "target": "trainer",
        "ep_implementation": "all_to_all",
        "fsdp_cpu_offload": True,
    }
    assert styles(plan.tp_plan) == {
        "model.layers.*.self_attn.q_proj": "colwise",
        "model.layers.[0-2].mlp.{gate,up}_proj": "colwise",
    }
    assert (plan.tp_plan.state, plan.ep_plan.state, plan.fsdp_plan.state) == ("rules", "rules", "absent")
    assert [r.text for r in plan.require] == ["num_key_value_heads % tp_size == 0", "ep_size <= 8"]


def test_places() -> None:
    plan = read(WHOLE)
    assert at(WHOLE, plan.options["ep_implementation"].span) == "all_to_all"
    rule = plan.tp_plan.rules[1]
    assert at(WHOLE, rule.span) == "model.layers.[0-2].mlp.{gate,up}_proj: colwise"
    assert rule.span.line == 11
    assert plan.tp_plan.span == Span("plan.yaml", 10, 3, 11, 49)
    assert at(WHOLE, plan.require[0].expression.right.span) == "0"  # type: ignore[union-attr]


QUOTES = st.sampled_from(["'{}'", '"{}"'])


@given(st.dictionaries(KEYS, STYLES, min_size=1, max_size=4), QUOTES, st.booleans(), st.sampled_from(["", "é: '😀', "]))
def test_every_key_and_style_is_found_at_its_place(rules: dict[str, str], quote: str, flow: bool, before: str) -> None:
    quoted = {key: json.dumps(style) if '"' in style or "'" in style else quote.format(style)
              for key, style in rules.items()}  # fmt: skip
    written = [f"{quote.format(key)}: {style}" for key, style in quoted.items()]
    text = f"tp_plan: {{{', '.join(written)}}}" if flow else "tp_plan:\n" + "".join(f"  {rule}\n" for rule in written)
    plan = read(text)
    assert styles(plan.tp_plan).keys() == {key.replace(" ", "") for key in rules}
    for rule, (key, style) in zip(plan.tp_plan.rules, rules.items(), strict=True):
        assert at(text, rule.key.span) == key
        assert at(text, rule.style.span) in (style, json.dumps(style))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_change_nothing(tmp_path: Path, newline: str, mark: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes((mark + WHOLE.replace("\n", newline)).encode())
    plan, found = parse_plan(path)
    assert not found
    assert plan == read(WHOLE, str(path))


def test_a_dump_of_a_distributed_config_is_a_plan() -> None:
    from transformers.distributed.configuration_utils import DistributedConfig

    assert {field.name for field in fields(DistributedConfig)} <= set(FIELDS)
    config = DistributedConfig(tp_size=2, fsdp_size=4, ep_size=8, tp_plan={"model.layers.*.mlp.up_proj": "colwise"})
    plan = read(config.to_json_string(), "config.json")
    for name in ("tp_size", "ep_size", "fsdp_size", "dp_replicate_size", "pp_size"):
        assert plan.sizes[name].value == getattr(config, name)
    assert plan.options["enable_expert_parallel"].value is True
    assert plan.options["ep_implementation"].value == "auto"
    assert styles(plan.tp_plan) == config.tp_plan
    assert plan.ep_plan == PlanSection()


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("tp_size: 2", "absent"),
        ("tp_plan: null", "absent"),
        ("tp_plan:", "absent"),
        ("tp_plan: auto", "auto"),
        ("tp_plan: {}", "rules"),
        ("lm_head: colwise", "rules"),
        ("{}", "absent"),
        ('{"tp_plan": null, "ep_plan": null, "fsdp_plan": null}', "absent"),
    ],
)
def test_states_of_a_section(text: str, state: str) -> None:
    assert read(text).tp_plan.state == state


def test_a_bare_dict_is_a_tp_plan() -> None:
    plan = read('{"model.layers.*.self_attn.q_proj": "colwise", "lm_head": "colwise_gather_output"}')
    assert styles(plan.tp_plan) == {
        "model.layers.*.self_attn.q_proj": "colwise",
        "lm_head": "colwise_gather_output",
    }


def test_one_condition_needs_no_list() -> None:
    assert [r.text for r in read("require: ep_size <= 8").require] == ["ep_size <= 8"]


def test_yaml_is_1_2() -> None:
    """`no`, `on` and `1_000` are texts, as in the core schema; so is a date."""
    assert [c for name in ("no", "on", "1_000", "2001-01-01") if (c := read(f"model: {name}").model)] == [
        Spanned(name, Span("plan.yaml", 1, 8, 1, 8 + len(name))) for name in ("no", "on", "1_000", "2001-01-01")
    ]


def test_an_alias_of_a_value_is_that_value_and_stands_where_it_is_used() -> None:
    plan = read("tp_plan:\n  a: &c colwise\n  b: *c\n")
    assert styles(plan.tp_plan) == {"a": "colwise", "b": "colwise"}
    assert plan.tp_plan.rules[1].style.span == Span("plan.yaml", 3, 6, 3, 8)


def test_escapes_of_json_are_joined() -> None:
    assert read('{"model": "a\\/\\ud83d\\ude00"}').model == Spanned("a/😀", Span("plan.yaml", 1, 11, 1, 28))


@pytest.mark.parametrize("text", ["tp_size:\t2\n", "tp_size: 2\t# two\n", "tp_size: 2\n\t\n", '{\n\t"tp_size":\t2\n}'])
def test_tabs_that_indent_nothing_are_spaces(text: str) -> None:
    assert read(text).sizes["tp_size"].value == 2


def test_bad_rules_leave_the_others() -> None:
    plan, found = parse_text(
        "tp_plan:\n  a..b: colwise\n  c: colwise\n  d: x(\nep_size: two\ntp_size: 2\n", "plan.yaml"
    )
    assert [f.code for f in found] == ["PL021", "PL031", "PL009"]
    assert plan is not None
    assert styles(plan.tp_plan) == {"c": "colwise"}
    assert list(plan.sizes) == ["tp_size"]


def test_only_bad_rules_are_not_an_empty_plan() -> None:
    """`tp_plan: {}` means no TP at all; a plan whose rules are all misspelt doesn't."""
    plan, found = parse_text("tp_plan:\n  a..b: colwise\n", "plan.yaml")
    assert [f.code for f in found] == ["PL021"]
    assert plan is not None
    assert plan.tp_plan == PlanSection()


class TestExtends:
    """`extends`: rules and requirements are added after the base's, all else is replaced."""

    BASE = (
        "model: base\ndefaults: none\ntp_size: 2\nep_size: 4\ntarget: torchrun\n"
        "tp_plan: {a: colwise, b: rowwise}\nrequire: [tp_size <= 8]\n"
    )

    def plan(self, folder: Path, text: str, base: str = BASE) -> Plan:
        (folder / "sub").mkdir()
        (folder / "sub" / "base.yaml").write_text(base)
        (folder / "plan.yaml").write_text(f"extends: sub/base.yaml\n{text}")
        plan, found = parse_plan(folder / "plan.yaml")
        assert not found
        assert plan is not None
        return plan

    def test_nothing_of_its_own(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, "")
        assert without_places(plan) == without_places(read(self.BASE))
        assert plan.file == str(tmp_path / "plan.yaml")

    def test_what_is_replaced(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, "model: own\ndefaults: model\ntp_size: 4\ntarget: trainer\nep_size: null\n")
        assert plan.model is not None
        assert (plan.model.value, plan.defaults, plan.options["target"].value) == ("own", "model", "trainer")
        assert {name: size.value for name, size in plan.sizes.items()} == {"tp_size": 4, "ep_size": 4}

    def test_what_is_added(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, "tp_plan: {b: colwise, c: rowwise}\nrequire: [ep_size <= 8]\n")
        assert [(r.key.text, r.style.text, Path(r.span.file).name) for r in plan.tp_plan.rules] == [
            ("a", "colwise", "base.yaml"),
            ("b", "rowwise", "base.yaml"),
            ("b", "colwise", "plan.yaml"),
            ("c", "rowwise", "plan.yaml"),
        ]
        assert [r.text for r in plan.require] == ["tp_size <= 8", "ep_size <= 8"]

    @pytest.mark.parametrize(("own", "state"), [("auto", "auto"), ("{}", "rules")])
    def test_what_puts_rules_aside(self, tmp_path: Path, own: str, state: str) -> None:
        section = self.plan(tmp_path, f"tp_plan: {own}\n").tp_plan
        assert (section.state, section.rules) == (state, ())

    def test_sources_hold_both_files(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, "")
        assert plan.sources == {
            str(tmp_path / "plan.yaml"): "extends: sub/base.yaml\n",
            str(tmp_path / "sub" / "base.yaml"): self.BASE,
        }

    def test_a_bare_dict_can_be_extended(self, tmp_path: Path) -> None:
        assert styles(self.plan(tmp_path, "", "lm_head: colwise\n").tp_plan) == {"lm_head": "colwise"}

    def test_names_are_relative_to_the_extending_file(self, tmp_path: Path) -> None:
        (tmp_path / "root.yaml").write_text("tp_size: 8\n")
        assert self.plan(tmp_path, "", "extends: ../root.yaml\n").sizes["tp_size"].value == 8


@pytest.mark.parametrize("value", [{"a": 1}, [1], 3, True, 2.5])
def test_types_in_json_are_those_of_yaml(value: Any) -> None:
    _, found = parse_text(json.dumps({"model": value}), "plan.json")
    assert [f.code for f in found] == ["PL009"]
