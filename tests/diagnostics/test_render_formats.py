"""Whole outputs of every format, and what the programs that read them rely on."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Report, Severity
from planc.diagnostics.render import FORMATS, render
from planc.diagnostics.span import Span

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parent / "data" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
Golden = Callable[[Path, str], None]


@pytest.mark.parametrize("name", FORMATS)
def test_one_plan(name: str, broken: Report, golden: Golden) -> None:
    golden(HERE / "snapshots" / f"one.{name}", render(name, [broken]))


@pytest.mark.parametrize("name", FORMATS)
def test_several_plans(name: str, broken: Report, fine: Report, golden: Golden) -> None:
    golden(HERE / "snapshots" / f"several.{name}", render(name, [broken, fine, fine]))


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_found(name: str, fine: Report, golden: Golden) -> None:
    golden(HERE / "snapshots" / f"none.{name}", render(name, [fine]))


def test_unknown_format(fine: Report) -> None:
    with pytest.raises(KeyError):
        render("os", [fine])


def sarif(*reports: Report) -> dict[str, object]:
    document: dict[str, object] = json.loads(render("sarif", reports))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_sarif_is_valid(broken: Report, fine: Report) -> None:
    sarif(broken, fine)
    sarif(fine)
    sarif()


def test_the_schema_refuses_what_is_not_sarif(broken: Report) -> None:
    document = json.loads(render("sarif", [broken]))
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def test_sarif_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = [str(tmp_path / "a plan.yaml"), "/elsewhere/层.yaml", "sub/x#1.yaml"]
    found = tuple(Diagnostic("PL1", Severity.ERROR, "wrong", Span(file, 1, 1, 1, 2)) for file in files)
    run = sarif(Report(found))["runs"][0]  # type: ignore[index]
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]]
    assert uris == ["a%20plan.yaml", "file:///elsewhere/%E5%B1%82.yaml", "sub/x%231.yaml"]
    assert "<" not in json.dumps(run["artifacts"])


def test_json_of_several_plans_is_not_ok_when_one_is_not(broken: Report, fine: Report) -> None:
    document = json.loads(render("json", [fine, broken]))
    assert (document["ok"], [r["ok"] for r in document["reports"]]) == (False, [True, False])
    assert json.loads(render("json", [fine])) == document["reports"][0]


def test_github_escapes() -> None:
    found = Diagnostic("PL1", Severity.WARNING, "50 % of a,b: x\n::error::y", Span("a,b:c.yaml", 1, 2, 1, 3))
    assert render("github", [Report((found,))]) == (
        "::warning file=a%2Cb%3Ac.yaml,line=1,endLine=1,col=2,endColumn=3,title=PL1::50 %25 of a,b: x%0A::error::y\n"
    )


def test_github_shows_no_control_characters() -> None:
    found = Diagnostic("PL1", Severity.NOTE, "a\x1b[2Jb", Span("p\x1b[1m.yaml", 1, 2, 1, 3), notes=("c\x07\td",))
    assert render("github", [Report((found,))]) == (
        "::notice file=p\\x1b[1m.yaml,line=1,endLine=1,col=2,endColumn=3,title=PL1::a\\x1b[2Jb%0Ac\\x07 d\n"
    )


def test_fixes_of_virtual_sources_stay_out_of_sarif() -> None:
    place = Span("<command line>", 1, 1, 1, 2)
    found = Diagnostic("PL1", Severity.ERROR, "wrong", place, fix=Fix("mend", (Edit(place, "x"),)))
    document = sarif(Report((found,), labels_source()))
    assert "fixes" not in json.dumps(document)


def labels_source() -> dict[str, str]:
    return {"<command line>": "planc"}


def test_labels_without_a_text_are_still_said() -> None:
    found = Diagnostic(
        "PL1", Severity.ERROR, "wrong", Span("gone.yaml", 9, 1, 9, 2), "here", (Label(Span("b", 1, 1, 1, 2), "there"),)
    )
    assert render("text", [Report((found,))]) == (
        "gone.yaml:9:1: error[PL1]: wrong\n"
        "  = note: here\n"
        " ::: b:1:1\n"
        "  = note: there\n"
        "  |\n"
        "  = docs: planc explain PL1\n"
        "\n"
        "1 plan checked: 1 error\n"
    )
