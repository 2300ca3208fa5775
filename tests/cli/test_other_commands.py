"""`planc explain`, `planc manifest`, `planc resolve`."""

import json
import re
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


@pytest.mark.parametrize(("word", "near"), [("PL5O1", "PL501"), ("kv-head-not-divisible", "kv-heads-not-divisible")])
def test_explain_knows_the_nearest_code(word: str, near: str, planc: Planc) -> None:
    result = planc("explain", word)
    assert (result.status, result.out) == (2, "")
    assert f"the nearest is `{near}`" in result.err


def test_explain_lists_all(planc: Planc) -> None:
    lines = planc("explain", "--all").out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_codes())


def test_every_code_is_documented() -> None:
    """The first line says in a sentence what the code is about: `explain --all` prints it alone."""
    for code in all_codes().values():
        first, _, rest = code.documentation.partition("\n\n")
        assert re.fullmatch(r"[A-Z`].{15,110}\.", first), code.code
        assert rest
        assert "#" not in first + rest.split("Example")[0], code.code


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


BROKEN = "tp_size: 2\ntp_size: 4\n"
UNTIDY = "# ours\ntp_plan:\n    'lm_head':   colwise  # head\ntp_size: 2\n"


def test_fmt_writes_canonical_form_and_then_changes_nothing(planc: Planc, folder: Path) -> None:
    plan = folder / "plan.yaml"
    plan.write_text(UNTIDY)
    assert planc("fmt", plan.name).status == 0
    tidy = plan.read_text()
    assert "lm_head: colwise  # head" in tidy
    assert tidy.index("tp_size") < tidy.index("tp_plan")
    assert tidy != UNTIDY
    assert planc("fmt", plan.name).err == "1 file: 0 changed\n"
    assert plan.read_text() == tidy
    assert [path.name for path in folder.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_fmt_can_leave_files_alone(option: str, planc: Planc, folder: Path) -> None:
    plan = folder / "plan.yaml"
    plan.write_text(UNTIDY)
    result = planc("fmt", option, plan.name)
    assert (result.status, plan.read_text()) == (1, UNTIDY)
    assert result.err.startswith("1 file: 1 would change\n")
    assert ("-tp_size: 2\n" in result.out) is (option == "--diff")
    planc("fmt", plan.name)
    assert planc("fmt", option, plan.name).status == 0


def test_fmt_writes_through_no_link_that_lies_beside(planc: Planc, folder: Path) -> None:
    """A repository may carry a link of the name that a draft could have, and `fmt` runs as a pre-commit hook."""
    plan, precious = folder / "plan.yaml", folder / "precious"
    plan.write_text(UNTIDY)
    plan.chmod(0o640)
    precious.write_text("mine")
    (folder / ".plan.yaml.planc").symlink_to(precious)
    assert planc("fmt", plan.name).status == 0
    assert precious.read_text() == "mine"
    assert plan.read_text() != UNTIDY and plan.stat().st_mode & 0o777 == 0o640
    assert len(list(folder.iterdir())) == 3


def test_fmt_leaves_faulty_files_alone(planc: Planc, folder: Path) -> None:
    (folder / "bad.yaml").write_text(BROKEN)
    (folder / "good.yaml").write_text(UNTIDY)
    result = planc("fmt", "bad.yaml", "good.yaml")
    assert (result.status, (folder / "bad.yaml").read_text()) == (1, BROKEN)
    assert "bad.yaml:2:1: error[PL007]" in result.out
    assert (folder / "good.yaml").read_text() != UNTIDY
    assert planc("fmt", "gone.yaml").status == 2
    assert planc("fmt", ".").status == 2


def test_fmt_keeps_permissions_and_follows_links(planc: Planc, folder: Path) -> None:
    plan, link = folder / "plan.yaml", folder / "link.yaml"
    plan.write_text(UNTIDY)
    plan.chmod(0o640)
    link.symlink_to(plan)
    assert planc("fmt", link.name).status == 0
    assert link.is_symlink()
    assert plan.stat().st_mode & 0o777 == 0o640
    assert plan.read_text() != UNTIDY


SIZES = [
    ["--tp-size", "4"],
    ["--tp-size", "2", "--fsdp-size", "2", "--ep-size", "4"],
    ["--fsdp-size", "2", "--dp-replicate-size", "2"],
]


@pytest.mark.parametrize("sizes", SIZES, ids=" ".join)
@pytest.mark.parametrize("model", [MODEL, "deepseek-v3", "llama-3.1-8b"])
def test_init_writes_what_the_model_does_anyway(model: str, sizes: list[str], planc: Planc, folder: Path) -> None:
    if model == "llama-3.1-8b" and "--ep-size" in sizes:
        sizes = sizes[:-2]
    written = planc("init", model, *sizes, "-o", "plan.yaml")
    assert (written.status, written.out) == (0, "")
    assert planc("fmt", "--check", "plan.yaml").status == 0
    assert planc("diff", "plan.yaml", "own.yaml").status == 2
    (folder / "own.yaml").write_text(f"model: {model}\n" + "".join(f"{line}\n" for line in as_fields(sizes)))
    assert planc("diff", "plan.yaml", "own.yaml", "--exit-code").out == ""


def as_fields(sizes: list[str]) -> list[str]:
    return [f"{o.removeprefix('--').replace('-', '_')}: {n}" for o, n in zip(sizes[::2], sizes[1::2], strict=True)]


@pytest.mark.parametrize("words", [["resolve"], ["explain", "model.layers.*.mlp"], ["init"], ["check", "--show-types"]])
def test_names_do_not_steer_the_terminal(words: list[str], planc: Planc, folder: Path) -> None:
    content = json.loads(planc("manifest", MODEL).out)
    content["name"] = content["class_name"] = "a\x1b[2Jb"
    for module in content["modules"]:
        module["class_name"] += "\x1b[1m"
    Path("steers.json").write_text(json.dumps(content))
    result = planc(*words, "steers.json", "--tp-size", "8")
    assert result.out
    assert "\x1b" not in result.out + result.err


def test_init_of_rules_that_no_plan_can_hold(planc: Planc, folder: Path) -> None:
    content = json.loads(planc("manifest", MODEL).out)
    content["plans"]["tp"] = {"lm_head\x1b[1m": "colwise_gather_output"}
    for module in content["modules"]:
        module["name"] = module["name"].replace("lm_head", "lm_head\x1b[1m")
    content["output_embeddings"] = "lm_head\x1b[1m"
    Path("steers.json").write_text(json.dumps(content))
    result = planc("init", "steers.json", "--tp-size", "2")
    assert result.status == 2
    assert "can't be written to a file" in result.err


def test_init_does_not_overwrite(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text("mine")
    assert planc("init", MODEL, "--tp-size", "2", "-o", "plan.yaml").status == 2
    assert (folder / "plan.yaml").read_text() == "mine"
    assert planc("init", MODEL, "--tp-size", "2", "-o", "plan.yaml", "--force").status == 0
    assert (folder / "plan.yaml").read_text() == planc("init", MODEL, "--tp-size", "2").out
    assert planc("init", MODEL, "plan.yaml").status == 2
    assert planc("init", "./nowhere").status == 2


def test_compile(planc: Planc, folder: Path) -> None:
    assert planc("compile", MODEL, "--tp-size", "2", "-o", "program.json").status == 0
    text = (folder / "program.json").read_text()
    assert json.loads(text)["layout"]["tp_size"] == 2
    result = planc("compile", MODEL, "--tp-size", "2", "--dump-after", "deduplicate")
    assert result.out == text
    assert "# after deduplicate\n" in result.err
    assert planc("compile", MODEL, "--dump-after", "no-such-pass").status == 2


def test_compile_refuses_plans_with_errors(planc: Planc, folder: Path) -> None:
    result = planc("compile", MODEL, "--tp-size", "8", "-o", "program.json")
    assert (result.status, result.out) == (1, "")
    assert "error[PL301]" in result.err
    assert not (folder / "program.json").exists()
    assert planc("compile", "./nowhere").status == 2


def test_diff_of_plans(planc: Planc, folder: Path) -> None:
    (folder / "a.yaml").write_text("tp_size: 2\n")
    (folder / "b.yaml").write_text("tp_size: 2\ntp_plan: {'model.layers.[3-4].self_attn.q_norm': replicate}\n")
    result = planc("diff", MODEL, "a.yaml", "b.yaml")
    assert result.status == 0
    assert "- tp model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce  [3-4]\n" in result.out
    assert "+ tp model.layers.*.self_attn.q_norm: replicate  [3-4]\n" in result.out
    assert planc("diff", MODEL, "a.yaml", "b.yaml", "--exit-code").status == 1
    same = planc("diff", MODEL, "a.yaml", "a.yaml", "--exit-code")
    assert (same.status, same.out, same.err) == (0, "", "no difference\n")


def test_diff_of_programs(planc: Planc, folder: Path) -> None:
    for size in ("2", "4"):
        planc("compile", MODEL, "--tp-size", size, "-o", f"{size}.json")
    result = planc("diff", "2.json", "4.json")
    assert "- layout tp_size=2\n+ layout tp_size=4\n" in result.out
    assert planc("diff", "2.json", "2.json").out == ""
    damaged = (folder / "4.json").read_text().replace('"tp_size":4', '"tp_size":2')
    (folder / "damaged.json").write_text(damaged)
    assert planc("diff", "2.json", "damaged.json").status == 2
    assert planc("diff", "2.json").status == 2


def test_explain_a_key(planc: Planc, folder: Path) -> None:
    (folder / "plan.yaml").write_text(
        "tp_size: 2\nep_size: 2\ntp_plan:\n  model.layers.[0-2].self_attn.q_norm: replicate\n"
    )
    q_norm = planc("explain", "model.layers.*.self_attn.q_norm", MODEL, "plan.yaml")
    assert q_norm.status == 0
    assert "3 targets: model.layers.0.self_attn.q_norm … model.layers.2.self_attn.q_norm\n" in q_norm.out
    assert "  tp: replicate, from `model.layers.[0-2].self_attn.q_norm: replicate` (plan.yaml:4)\n" in q_norm.out
    assert "    hides `model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce`" in q_norm.out
    assert "45 targets: model.layers.3.self_attn.q_norm" in q_norm.out
    experts = planc("explain", "model.layers.7.mlp.experts", MODEL, "plan.yaml").out
    assert "tp: nothing; `model.layers.*.mlp.experts: moe_tp_experts` (<" in experts
    assert "displaced by `model.layers.*.mlp.experts: ep_dispatch_experts`" in experts
    weight = planc("explain", "model.layers.7.self_attn.q_proj.weight", MODEL, "plan.yaml").out
    assert "tp: colwise, as its module, from `model.layers.*.self_attn.q_proj: colwise`" in weight
    assert "fsdp: nothing" in weight


def test_explain_shows_what_flows_through_a_module(planc: Planc) -> None:
    words = ["explain", "model.layers.*.mlp.down_proj", "qwen3-8b"]
    flow = """
model.layers.*.mlp.down_proj (36 modules): rowwise
  in  S(-1), gradient S(-1), from model.layers.*.mlp.act_fn, model.layers.*.mlp.up_proj
      made by model.layers.*.mlp.gate_proj.weight (colwise)
  out R, gradient R, to model.layers.*.mlp
"""
    assert planc(*words, "--tp-size", "2").out.endswith(flow)
    assert "gradient" not in planc(*words).out


@pytest.mark.parametrize("sizes", [[], ["--tp-size", "2"]])
def test_explain_a_key_for_other_configs(sizes: list[str], planc: Planc) -> None:
    result = planc("explain", "model.layers.*.mlp.up_proj", MODEL, *sizes)
    assert (result.status, result.out.splitlines()) == (
        0,
        [
            "`model.layers.*.mlp.up_proj` names nothing that this config of Qwen3MoeForCausalLM builds",
            "  tp: the model's own plan has `model.layers.*.mlp.up_proj: colwise` (<Qwen3MoeForCausalLM.tp_plan>:13) "
            "for other configs",
        ],
    )


@pytest.mark.parametrize("key", ["model.layers.*.q_prj", "model..x", "[", ""])
def test_explain_a_key_that_names_nothing(key: str, planc: Planc) -> None:
    result = planc("explain", key, MODEL, "--tp-size", "2")
    assert (result.status, result.out) == (2, "")
    assert "name a model too" in planc("explain", "model.layers.*.q_proj").err


PICTURE = """\
4 ranks: fsdp_size=2, tp_size=2

rank        0        1        2        3
batch      [======B0=======] [======B1=======]
tp          0        1        0        1
fsdp       [=======0=======] [=======1=======]
ep_size=4   E0-31    E32-63   E64-95   E96-127
"""


def test_show(planc: Planc, folder: Path) -> None:
    result = planc("show", MODEL, "--tp-size", "2", "--fsdp-size", "2", "--ep-size", "4")
    assert (result.status, result.out[: len(PICTURE)]) == (0, PICTURE)
    alone = planc("show", "--tp-size", "2", "--fsdp-size", "2", "--ep-size", "4")
    assert alone.status == 0
    assert alone.out.startswith("4 ranks: fsdp_size=2, tp_size=2\n")
    (folder / "plan.yaml").write_text(f"model: {MODEL}\ntp_size: 2\nfsdp_size: 2\nep_size: 4\n")
    assert planc("show", "plan.yaml").out == result.out
    document = json.loads(planc("show", "plan.yaml", "--output-format", "json").out)
    assert document["layout"]["ep_size"] == 4
    assert planc("show", "plan.yaml", "--output-format", "svg").out.startswith("<svg")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--tp-size", "2", "--ep-size", "3"], 1),
        (["--tp-size", "0"], 1),
        (["--tp-size", "1000000000"], 2),
        ([MODEL, "--fsdp-size", "3", "--ep-size", "3"], 1),
        ([MODEL, "--tp-size", "0"], 1),
        ([MODEL, "--tp-size", "1000000000"], 2),
        (["./nowhere", "--tp-size", "2"], 2),
        (["--gpus-per-node", "0"], 2),
    ],
)
def test_show_refuses_illegal_sizes(words: list[str], status: int, planc: Planc, folder: Path) -> None:
    assert planc("show", *words).status == status


def test_show_numbers_experts_of_no_model(planc: Planc) -> None:
    out = planc("show", "--fsdp-size", "4", "--ep-size", "4", "--experts", "8").out
    assert "E0E1" in out and "E6E7" in out
    assert planc("show", "--fsdp-size", "4", "--ep-size", "4", "--experts", "6").status == 1


def test_manifest_lists_bundled_models(planc: Planc) -> None:
    result = planc("manifest", "--list")
    assert (result.status, result.err) == (0, "")
    assert ["qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B"] in [line.split() for line in result.out.splitlines()]
    assert planc("manifest").status == 2


@pytest.mark.parametrize(
    ("option", "value", "legal"),
    [
        ("--dtype", "bf16", ["'auto', 'bfloat16', 'float16', 'float32', 'float64'"]),
        ("--attn-implementation", "flash", ["legal are eager, ", "flash_attention_2", "flex_attention", "sdpa"]),
        (
            "--experts-implementation",
            "grouped",
            ["legal are batched_mm, deepgemm, deepgemm_megamoe, eager, grouped_mm"],
        ),
    ],
)
def test_apply_refuses_what_no_model_is_loaded_with(option: str, value: str, legal: list[str], planc: Planc) -> None:
    result = planc("apply", "qwen3-0.6b", "--tp-size", 2, option, value)
    assert (result.status, result.out) == (2, "")
    assert f"Invalid value for '{option}'" in result.err
    assert all(words in result.err for words in legal)
