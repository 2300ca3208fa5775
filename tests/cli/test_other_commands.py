"""`planc explain`, `planc manifest`, `planc resolve`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planc.cli.rules import all_codes

MODEL = "qwen3-30b-a3b"
Planc = Callable[..., Any]


@pytest.mark.parametrize("word", ["PL301", "pl301", "kv-heads-not-divisible"])
def test_explain_prints_the_rules_own_documentation(word: str, planc: Planc) -> None:
    result = planc("explain", word)
    assert result.status == 0
    assert result.out == f"kv-heads-not-divisible (PL301), error\n\n{all_codes()['PL301'].documentation}\n"


@pytest.mark.parametrize(("word", "near"), [("PL3O1", "PL301"), ("kv-head-not-divisible", "kv-heads-not-divisible")])
def test_explain_knows_the_nearest_code(word: str, near: str, planc: Planc) -> None:
    result = planc("explain", word)
    assert (result.status, result.out) == (2, "")
    assert f"the nearest is `{near}`" in result.err


def test_explain_lists_all(planc: Planc) -> None:
    lines = planc("explain", "--all").out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_codes())


def test_every_code_is_documented() -> None:
    assert [code.code for code in all_codes().values() if not code.documentation] == []


def test_explain_without_a_code(planc: Planc) -> None:
    assert planc("explain").status == 2


def test_manifest_can_stand_for_its_model(planc: Planc, folder: Path) -> None:
    assert planc("manifest", MODEL, "-o", "model.json").status == 0
    assert planc("manifest", MODEL).out == (folder / "model.json").read_text()
    with_file = json.loads(planc("resolve", "model.json", "--tp-size", "2", "--output-format", "json").out)
    assert with_file == json.loads(planc("resolve", MODEL, "--tp-size", "2", "--output-format", "json").out)


@pytest.mark.parametrize("model", ["./nowhere", ".", "a b c"])
def test_manifest_of_an_unusable_model(model: str, planc: Planc, folder: Path) -> None:
    result = planc("manifest", model)
    assert (result.status, result.out) == (2, "")
    assert result.err


def test_an_output_that_can_not_be_written(planc: Planc, folder: Path) -> None:
    result = planc("manifest", MODEL, "-o", "no/such/folder/x.json")
    assert (result.status, result.out) == (2, "")
    assert "No such file or directory" in result.err


def test_resolve_json(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text(
        "tp_size: 2\nep_size: 2\ntp_plan: {'model.layers.[1-2].self_attn.q_proj': replicate}\n"
    )
    result = planc("resolve", MODEL, "plan.yaml", "--output-format", "json")
    document = json.loads(result.out)
    assert result.status == 0
    assert (list(document), document["format_version"]) == (["format_version", "tp", "ep", "fsdp"], 1)
    styles = [document["tp"][f"model.layers.{i}.self_attn.q_proj"] for i in range(4)]
    assert styles == ["colwise", "replicate", "replicate", "colwise"]
    assert document["tp"]["model.layers.1.self_attn.q_proj.weight"] == "replicate"
    assert document["ep"]["model.layers.0.mlp.experts"] == "ep_dispatch_experts"
    assert document["fsdp"] == {}


def test_resolve_text_says_where_a_style_comes_from_and_what_it_hides(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_size: 2\ntp_plan: {'model.layers.[1-2].self_attn.q_proj': replicate}\n")
    lines = [line.split() for line in planc("resolve", MODEL, "plan.yaml").out.splitlines()]
    rows = [line for line in lines if line[:1] == ["model.layers.*.self_attn.q_proj"]]
    assert [row[1:3] for row in rows] == [["colwise", "46x"], ["replicate", "2x"]]
    assert rows[1][3:5] == ["plan.yaml:2,", "hides"]


def test_resolve_refuses_what_it_can_not_read(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_size: [2]\n")
    result = planc("resolve", MODEL, "plan.yaml", "--output-format", "json")
    assert (result.status, result.out) == (1, "")
    assert "error[PL009]" in result.err
    assert planc("resolve", "./nowhere").status == 2
    assert planc("resolve", MODEL, "plan.yaml", "plan.yaml").status == 2
