"""`planc check`: exit statuses, several plans, hostile inputs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planc.styles import registry

MODEL = "qwen3-30b-a3b"
Planc = Callable[..., Any]


def codes(out: str) -> set[str]:
    return {found["code"] for found in json.loads(out)["diagnostics"]}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([MODEL, "--tp-size", "4"], 0),
        ([MODEL, "--tp-size", "8"], 1),
        ([MODEL, "--tp-size", "0"], 1),
        ([MODEL, "--tp-size", "-1"], 1),
        ([MODEL, "--tp-size", "four"], 2),
        ([MODEL, "--tp-size", "9" * 18, "--ep-size", "9" * 18], 1),
        ([MODEL, "--tp-size", "9" * 19], 2),
        ([MODEL, "--world-size", "9" * 19], 2),
        ([MODEL, "--world-size", "0"], 2),
        ([MODEL, "--no-such-option"], 2),
        ([MODEL, "--output-format", "xml"], 2),
        ([MODEL, "--select", "XY1"], 2),
        ([MODEL, "--tp-size", "8", "--select", "PL2"], 0),
        ([MODEL, "--tp-size", "8", "--ignore", "PL3,PL4,PL5"], 0),
        ([MODEL, "--styles-module", "no_such_module"], 2),
        ([], 2),
        (["/no/such/model"], 2),
        (["no/such:model!"], 2),
        ([MODEL, "missing.yaml"], 2),
        (["missing.yaml"], 2),
        (["missing.json"], 2),
        ([""], 2),
        ([MODEL, ""], 2),
        ([MODEL, "x" * 5000], 2),
        (["x" * 5000], 2),
        (["\x00"], 2),
        (["."], 2),
        ([MODEL, "."], 2),
    ],
)
def test_exit_status(words: list[str], status: int, planc: Planc, folder: Path) -> None:
    result = planc("check", *words)
    assert result.status == status
    assert result.out or result.err


CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 16,
    "utf-16": "tp_size: 2".encode("utf-16"),
    "latin-1": "# é\ntp_size: 2".encode("latin-1"),
    "nested": b"[" * 100_000,
    "nested mappings": b"{a: " * 100_000,
    "bomb": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(20)),
    "tag": b"tp_plan: !!python/object/apply:os.system ['touch pwned']",
    "scalar": b"42",
    "list": b"- tp_size: 2",
    "several documents": b"tp_size: 2\n---\ntp_size: 4\n",
    "tab": b"tp_plan:\n\tlm_head: colwise\n",
    "escape sequences": b'tp_plan: {\'lm_head\': "\\e[31m", "\\e]0;x\\a": colwise}',
    "nan": b"tp_size: .nan",
    "huge size": b"tp_size: " + b"9" * 400,
    "huge range": b"tp_plan: {'model.layers.[0-99999999999999].mlp': colwise}",
    "extends itself": b"extends: plan.yaml",
    "extends a device": b"extends: /dev/zero",
    "model is a list": b"model: [a]",
    "model with escapes": b'model: "\\e[2J"',
    "json": b'{"model": "qwen3-30b-a3b", "tp_size": 2',
    "one long line": b"{model: qwen3-30b-a3b, tp_plan: {" + b"x: colwise, " * 20_000 + b"}}",
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_hostile_plans(name: str, suffix: str, planc: Planc, folder: Path) -> None:
    plan = folder / f"plan.{suffix}"
    plan.write_bytes(CONTENTS[name])
    for words in ([MODEL, plan.name], [plan.name]):
        result = planc("check", *words)
        assert result.status in (1, 2) or (name, words[0]) == ("model with escapes", MODEL)
        assert ("error[" in result.out) is (result.status > 0)
        assert len(result.out) < 200_000
        assert "\x1b" not in result.out + result.err
    assert not (folder / "pwned").exists()


def test_folders_and_devices_are_no_plans(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    for plan in ("plan.yaml", "pipe.yaml", "/dev/zero"):
        assert planc("check", MODEL, plan).status == 2


def test_unusable_configs(planc: Planc, folder: Path) -> None:
    for content in (b"", b"{", b"[]", bytes(range(256)), b'{"model_type": "no_such_type"}', b'{"model_type": 3}'):
        (folder / "config.json").write_bytes(content)
        result = planc("check", folder, "--tp-size", "2")
        assert (result.status, codes_or_none(result.out)) == (2, "PL051")


def codes_or_none(out: str) -> str | None:
    return "PL051" if "error[PL051]" in out else None


def test_what_the_text_says_is_reported_with_an_unusable_model(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_sise: 2\nmodel: ./nowhere\n")
    result = planc("check", "plan.yaml", "--output-format", "json")
    assert (result.status, codes(result.out)) == (2, {"PL008", "PL051"})


def test_several_plans_each_against_its_model(planc: Planc, folder: Path) -> None:
    (folder / "a.yaml").write_text(f"model: {MODEL}\ntp_size: 4\n")
    (folder / "b.yml").write_text(f"model: {MODEL}\ntp_size: 8\n")
    (folder / "c.json").write_text(json.dumps({"model": "qwen3-8b", "tp_size": 2}))
    result = planc("check", "a.yaml", "b.yml", "c.json")
    assert result.status == 1
    assert result.out.splitlines()[-1].startswith("3 plans checked: ")
    assert result.out.splitlines()[-1].partition(" errors in 1 plan")[1]
    document = json.loads(planc("check", "a.yaml", "b.yml", "c.json", "--output-format", "json").out)
    assert [report["model"]["name"] for report in document["reports"]] == [MODEL, MODEL, "qwen3-8b"]
    assert [report["ok"] for report in document["reports"]] == [True, False, True]


def test_the_worst_plan_decides(planc: Planc, folder: Path) -> None:
    (folder / "good.yaml").write_text(f"model: {MODEL}\ntp_size: 4\n")
    (folder / "bad.yaml").write_text(f"model: {MODEL}\ntp_size: 8\n")
    assert planc("check", "good.yaml", "bad.yaml", "good.yaml").status == 1
    assert planc("check", "gone.yaml", "bad.yaml", "good.yaml").status == 2


def test_the_command_line_wins_over_the_plan(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("model: qwen3-8b\ntp_size: 64\nep_implementation: nonsense\n")
    words = ("check", MODEL, "plan.yaml", "--tp-size=4", "--ep-implementation", "auto", "--output-format", "json")
    result = planc(*words)
    document = json.loads(result.out)
    assert (result.status, document["model"]["name"], document["layout"]["tp_size"]) == (0, MODEL, 4)


def test_findings_point_into_the_command_line(planc: Planc, folder: Path) -> None:
    result = planc("check", MODEL, "--tp-size=2", "--fsdp-size", "3", "--ep-size", "4")
    lines = result.out.splitlines()
    quoted = next(i for i, line in enumerate(lines) if "planc check" in line and "--ep-size 4" in line)
    carets = lines[quoted + 1]
    assert "4" in {lines[quoted][i] for i, c in enumerate(carets) if c in "^-"}
    nowhere = planc("check", "./no where").out.splitlines()
    assert nowhere[2:4] == ["1 | planc check './no where'", "  |             ^^^^^^^^^^^^"]


def test_strict(planc: Planc, folder: Path) -> None:
    words = ("check", "gpt-oss-120b", "--tp-size", "8")
    result = planc(*words)
    assert result.status == 0
    assert "warning[" in result.out
    assert planc(*words, "--strict").status == 1


def test_json_is_that_of_the_design(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_plan:\n  model.layers.*.self_attn.k_proj: colwise\n")
    document = json.loads(planc("check", MODEL, "plan.yaml", "--tp-size", "8", "--output-format", "json").out)
    assert list(document) == ["format_version", "ok", "plan", "model", "layout", "diagnostics", "coverage"]
    assert document["model"] == {"name": MODEL, "class": "Qwen3MoeForCausalLM"}
    found = next(d for d in document["diagnostics"] if d["file"] == "plan.yaml")
    assert (found["code"], found["name"], found["severity"]) == ("PL301", "kv-heads-not-divisible", "error")
    assert (found["line"], found["column"], found["end_line"], found["end_column"]) == (2, 3, 2, 34)
    assert found["key"] == "model.layers.*.self_attn.k_proj"
    assert found["target_count"] == 48
    assert found["targets"][0] == "model.layers.0.self_attn.k_proj"
    assert isinstance(found["help"], str)
    coverage = document["coverage"]
    assert coverage["parameters"] == 30_532_122_624
    assert 0 < coverage["sharded"] < coverage["parameters"]
    assert all(item["bytes"] > 0 and item["name"] for item in coverage["replicated"])


def test_github_lines_point_into_the_plan(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text(f"model: {MODEL}\ntp_size: 2\ntp_plan: {{lm_head: colwise_gather}}\n")
    out = planc("check", "plan.yaml", "--output-format", "github").out
    assert "::error file=plan.yaml,line=3,endLine=3,col=20,endColumn=34,title=PL" in out


def test_styles_module(planc: Planc, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered_styles", {})
    monkeypatch.delitem(sys.modules, "our_styles", raising=False)
    (folder / "our_styles.py").write_text(
        "from planc.styles.registry import register\n"
        "class Ours:\n"
        "    def shard_param(self, *a, **k): ...\n"
        "    def transform_inputs_pre_forward(self, *a, **k): ...\n"
        "    def transform_output_post_forward(self, *a, **k): ...\n"
        "    def install_forward(self, *a, **k): ...\n"
        "register('ours', Ours)\n"
    )
    (folder / "plan.yaml").write_text("tp_plan: {lm_head: ours}\n")
    words = ("check", MODEL, "plan.yaml", "--tp-size", "2", "--output-format", "json")
    without = {d["key"] for d in json.loads(planc(*words).out)["diagnostics"] if d["severity"] == "error"}
    with_it = json.loads(planc(*words, "--styles-module", "our_styles").out)["diagnostics"]
    assert "lm_head" in without
    assert "lm_head" not in {d["key"] for d in with_it if d["severity"] == "error"}


WARM = """
import sys
from planc.cli.main import run
status = run(["check", "qwen3-30b-a3b", "plan.yaml"])
print(status, [m for m in ("torch", "transformers", "networkx", "rich", "numpy") if m in sys.modules], file=sys.stderr)
"""


def test_a_warm_check_imports_no_library_that_it_does_not_need(folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_size: 8\n")
    result = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1] == "1 []"


def test_types_are_shown_before_the_findings(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("tp_size: 2\ntp_plan:\n  model.layers.[0-3].mlp.down_proj: colwise\n")
    result = planc("check", "qwen3-8b", "plan.yaml", "--show-types")
    title, _, *lines = result.out.splitlines()
    assert (result.status, title) == (1, "plan.yaml on qwen3-8b")
    rows = [line.split() for line in lines]
    assert ["down_proj", "x4", "colwise", "S(-1)", "~?", "->", "wrong", "~?"] in rows
    assert ["o_proj", "x32", "rowwise", "S(-1)", "~S(-1)", "->", "R", "~R"] in rows
    assert lines[-1].startswith("1 plan checked: 1 error")


def test_types_of_several_plans(planc: Planc, folder: Path) -> None:
    for name, size in (("one.yaml", 1), ("two.yaml", 2)):
        (folder / name).write_text(f"tp_size: {size}\n")
    out = planc("check", "qwen3-8b", "one.yaml", "two.yaml", "--show-types").out
    alone, both = out.split("two.yaml on qwen3-8b\n")
    assert alone == "one.yaml on qwen3-8b\n\nno types: without tensor parallelism every value is whole\n\n"
    assert "embedding_rowwise" in both


@pytest.mark.parametrize("format_name", ["concise", "json", "sarif", "github"])
def test_types_are_text(format_name: str, planc: Planc) -> None:
    result = planc("check", "qwen3-8b", "--tp-size", "2", "--show-types", "--output-format", format_name)
    assert (result.status, result.out) == (2, "")
    assert f"text only, not `{format_name}`" in result.err


def test_types_of_a_plan_that_can_not_be_read(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("[")
    assert planc("check", "qwen3-8b", "plan.yaml", "--show-types") == planc("check", "qwen3-8b", "plan.yaml")
