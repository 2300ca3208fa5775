"""Nearest names, drawn-together names, and legal sizes as they are said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planc
from planc.check.nearest import edit_distance, nearest, or_list
from planc.check.places import divisors, layers_of, listed, ranges
from planc.check.suggestions import braces
from planc.diagnostics.units import gigabytes

WORDS = st.text("abc_", max_size=8)


@given(WORDS, WORDS)
def test_edit_distance_is_a_distance(left: str, right: str) -> None:
    distance = edit_distance(left, right)
    assert (distance == 0) == (left == right)
    assert distance == edit_distance(right, left)
    assert abs(len(left) - len(right)) <= distance <= max(len(left), len(right))


def test_swapped_neighbours_are_one_edit() -> None:
    assert edit_distance("self_atnt", "self_attn") == 1
    assert edit_distance("kitten", "sitting") == 3


@pytest.mark.parametrize(
    ("word", "best"),
    [("up_prj", "up_proj"), ("num_kv_heads", "num_key_value_heads"), ("all2all", "all_to_all"), ("zzz", None)],
)
def test_nearest(word: str, best: str | None) -> None:
    known = ["up_proj", "gate_proj", "num_key_value_heads", "all_to_all", "all_reduce"]
    assert next(iter(nearest(word, known)), None) == best


@pytest.mark.parametrize(
    ("names", "drawn"),
    [
        (["a.gate_proj", "a.up_proj"], ["a.{gate,up}_proj"]),
        (["a.q_proj"], ["a.q_proj"]),
        (["a.norm", "a.k_norm"], ["a.{norm,k_norm}"]),
        (["a.up_proj", "b.up_proj"], ["a.up_proj", "b.up_proj"]),
        (["w1", "w2"], ["{w1,w2}"]),
    ],
)
def test_names_are_drawn_together(names: list[str], drawn: list[str]) -> None:
    assert list(braces(names)) == drawn


def test_numbers_as_they_are_said() -> None:
    assert divisors(12, 6) == [1, 2, 3, 4, 6]
    assert divisors(49) == [1, 7, 49]
    assert divisors(10**18)[:5] == [1, 2, 4, 5, 8]
    assert divisors(10**18)[-1] == 10**18
    assert listed([1, 2, 4]) == "1, 2, 4"
    assert listed(range(20)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, 19"
    assert ranges([0, 1, 2, 5, 8, 9]) == "0-2, 5, 8, 9"
    assert layers_of(["model.layers.3.mlp", "model.layers.7.mlp"]) == "layers 3, 7"
    assert layers_of(["lm_head"]) == ""
    assert [gigabytes(n) for n in (59.7e9, 25.2e6, 10_240)] == ["59.7 GB", "25.2 MB", "10.2 kB"]
    assert or_list(["a", "b", "c"]) == "`a`, `b` or `c`"


def test_no_fix_writes_a_key_twice() -> None:
    """`gate_up_proj` is near `gate_proj`, which the plan has; two misspelt keys may mean the same one."""
    prefix = "model.layers.*.mlp."
    keys = ["gate_up_proj", "{gate,up}_proj", "down_projj", "ddown_proj"]
    rules = {prefix + key: "rowwise" if "down" in key else "colwise" for key in keys}
    report = planc.check("llama", {"tp_size": 2, "tp_plan": rules})
    fixes = [edit.replacement for d in report.diagnostics if d.code == "PL101" and d.fix for edit in d.fix.edits]
    assert fixes == [f"{prefix}down_proj"]


def test_no_fix_writes_a_field_twice() -> None:
    report = planc.check("llama", {"tp_sise": 2, "tp_size": 2, "ep_sise": 1, "ep_sizee": 1})
    fixes = [edit.replacement for d in report.diagnostics if d.code == "PL008" and d.fix for edit in d.fix.edits]
    assert fixes == ["ep_size"]


@pytest.mark.parametrize(
    "written, style",
    [
        ("col", "colwise"),
        ("column_wise", "colwise"),
        ("ColwiseParallel", "colwise"),
        ("ColumnParallelLinear", "colwise"),
        ("row", "rowwise"),
        ("RowwiseParallel", "rowwise"),
        ("row-parallel", "rowwise"),
        ("SequenceParallel", "sequence_parallel"),
        ("Packed_Colwise", "packed_colwise"),
    ],
)
def test_styles_in_other_words(written: str, style: str) -> None:
    report = planc.check("llama", {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.up_proj": written}})
    (found,) = [d for d in report.diagnostics if d.code == "PL106"]
    assert found.label == f"did you mean `{style}`?"


def test_the_styles_are_listed_once() -> None:
    rules = {f"model.layers.*.mlp.{name}_proj": f"made_up_{name}" for name in ("gate", "up", "down")}
    report = planc.check("llama", {"tp_size": 2, "tp_plan": rules})
    helped = [d.help for d in report.diagnostics if d.code == "PL106"]
    assert [len(lines) for lines in helped] == [1, 0, 0]


def test_one_unknown_style_is_one_finding() -> None:
    rules = {f"model.layers.*.mlp.{name}_proj": "colwis" for name in ("gate", "up")}
    report = planc.check("llama", {"tp_size": 2, "tp_plan": rules})
    (found,) = [d for d in report.diagnostics if d.code == "PL106"]
    assert found.message == "`colwis` is no style, and 2 rules name it"
    assert len(found.labels) == 1
    assert found.fix is not None and [edit.replacement for edit in found.fix.edits] == ["colwise"] * 2
