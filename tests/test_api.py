"""The Python facade."""

import subprocess
import sys
from pathlib import Path

import pytest

import planc
from planc.syntax.parser import parse_text

MODEL = "qwen3-30b-a3b"


def codes(report: planc.Report) -> set[str]:
    return {d.code for d in report.diagnostics if d.severity is planc.Severity.ERROR}


def test_check() -> None:
    report = planc.check(MODEL, tp_size=4)
    assert report.ok
    assert (report.model_name, report.model_class) == (MODEL, "Qwen3MoeForCausalLM")
    assert report.layout["tp_size"] == 4
    wrong = planc.check(MODEL, tp_size=8)
    assert not wrong.ok
    assert "PL301" in codes(wrong)


def test_a_plan_is_a_file_a_dict_or_parsed(tmp_path: Path) -> None:
    content = {"tp_size": 8, "tp_plan": {"model.layers.*.self_attn.k_proj": "colwise"}}
    file = tmp_path / "plan.yaml"
    file.write_text("tp_size: 8\ntp_plan:\n  model.layers.*.self_attn.k_proj: colwise\n")
    parsed, _ = parse_text(file.read_text(), "text.yaml")
    for plan in (content, file, str(file), parsed):
        report = planc.check(MODEL, plan, select=["PL3"])
        assert codes(report) == {"PL301"}
        places = [d.span for d in report.diagnostics if d.key == "model.layers.*.self_attn.k_proj" and d.span]
        assert places
        for place in places:
            assert "k_proj: colwise" in report.sources[place.file].split("\n")[place.line - 1]


def test_a_config_object_is_a_plan() -> None:
    class Config:
        def to_dict(self) -> dict[str, object]:
            return {"tp_size": 8, "tp_plan": None}

    assert codes(planc.check(MODEL, Config(), select=["PL3"])) == {"PL301"}


def test_arguments_win_and_are_quoted() -> None:
    report = planc.check(MODEL, {"tp_size": 2}, tp_size=4, fsdp_size=2, ep_size=2)
    assert report.layout["tp_size"] == 4
    found = next(d for d in report.diagnostics if d.span and d.span.file == "<planc.check>")
    assert found.span
    text = report.sources["<planc.check>"]
    assert text == f'planc.check("{MODEL}", tp_size=4, fsdp_size=2, ep_size=2)'
    assert text[found.span.column - 1 : found.span.end_column - 1] in {"4", "2"}


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"tp_size": "2"}, {"tp_size": True}, {"tp_size": 2.0}])
def test_wrong_arguments(sizes: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        planc.check(MODEL, **sizes)  # type: ignore[arg-type]


def test_bad_input_is_a_finding(tmp_path: Path) -> None:
    assert codes(planc.check(None)) == {"PL052"}
    assert codes(planc.check("./nowhere")) == {"PL051"}
    assert codes(planc.check(MODEL, tmp_path)) == {"PL002"}
    assert codes(planc.check(MODEL, {"tp_size": {"a": 1}})) == {"PL009"}
    assert planc.check(None, {"model": MODEL, "tp_size": 4}).ok


def test_select_and_ignore() -> None:
    assert planc.check(MODEL, tp_size=8, select=["PL2"]).ok
    assert planc.check(MODEL, tp_size=8, select=["PL3"], ignore=["kv-heads-not-divisible"]).ok


def test_resolve() -> None:
    resolved = planc.resolve(MODEL, tp_size=2)
    assert resolved.tp["lm_head"].style.name == "colwise_gather_output"
    with pytest.raises(planc.PlanError, match="PL009") as caught:
        planc.resolve(MODEL, {"tp_size": "two"})
    assert codes(caught.value.report) == {"PL009"}


def test_names() -> None:
    assert all(getattr(planc, name) is not None for name in dir(planc))
    with pytest.raises(AttributeError, match="nonsense"):
        planc.nonsense  # noqa: B018  (the access is the test)


def test_import_planc_imports_nothing_of_it() -> None:
    code = "import sys, planc; print([m for m in sys.modules if m.startswith('planc.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_compile() -> None:
    program = planc.compile(MODEL, tp_size=2)
    assert program.layout.tp_size == 2
    assert program.instructions
    with pytest.raises(planc.PlanError, match="PL") as caught:
        planc.compile(MODEL, tp_size=8)
    assert "PL301" in codes(caught.value.report)


def test_stages_can_be_called_however_they_were_imported() -> None:
    code = (
        "import inspect, planc.check.rule as rule, planc.resolve.layout; import planc; from planc import check;"
        f"print(rule.Rule.__name__, check({MODEL!r}, tp_size=4).ok, planc.resolve.layout.__name__,"
        "'world_size' in inspect.signature(planc.check).parameters)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("Rule True planc.resolve.layout True\n", "")


def test_a_plan_has_no_code_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who calls planc may name `package.module:factory`, whatever plan file brings the name."""
    trace = tmp_path / "ran"
    (tmp_path / "foreign_factory.py").write_text(f"open({str(trace)!r}, 'w').close()\nmake = 1\n")
    base, plan = tmp_path / "base.yaml", tmp_path / "plan.yaml"
    base.write_text("model: foreign_factory:make\n")
    plan.write_text("extends: base.yaml\ntp_size: 2\n")
    monkeypatch.chdir(tmp_path)
    for given in (base, plan, {"model": "foreign_factory:make"}):
        (found,) = planc.check(None, given).diagnostics
        assert found.code == "PL051"
        assert "foreign_factory:make" in found.message
        assert any("planc check foreign_factory:make" in text for text in found.help)
        assert not trace.exists()
    assert not planc.check("foreign_factory:make", plan).ok
    assert trace.exists()


@pytest.mark.parametrize("world_size", [0, -1])
def test_a_run_has_processes(world_size: int) -> None:
    with pytest.raises(ValueError, match="at least one process"):
        planc.check("qwen3-0.6b", {"tp_plan": {}}, world_size=world_size)
