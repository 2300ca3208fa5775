"""Files that mean harm or are none: a finding or two each, and never an exception."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planc.syntax.formatting import format_text
from planc.syntax.limits import MAX_BYTES, MAX_EXTENDS, MAX_FINDINGS
from planc.syntax.parser import parse_plan, parse_text

HALF = MAX_BYTES // 2  # the size of most texts below
LAUGHS = "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefgh"))
BIG = {
    "deep lists": ("[" * HALF, "PL005"),
    "deep mappings": ("{a: " * (HALF // 4), "PL005"),
    "deep blocks": ("".join(" " * i + "a:\n" for i in range(500)), "PL005"),
    "many dashes": ("- " * HALF, "PL005"),
    "long list": ("require: [" + "1," * (HALF // 2) + "]", "PL005"),
    "many aliases": ("a: &a b\ntp_plan: [" + "*a," * (HALF // 4) + "]", "PL005"),
    "many rules": ("tp_plan:\n" + "".join(f"  a{i}: b\n" for i in range(20_000)), "PL005"),
    "many keys of lists": ("? " * HALF, "PL006"),
    "comments": ("#\n" * HALF, "PL003"),
    "blank lines": ("\n" * HALF, "PL003"),
    "one long word": ("a" * HALF, "PL009"),
    "one long key": ("a" * HALF + ": b", "PL001"),
    "one long quoted key": ("? '" + "a" * HALF + "'\n: b", "PL021"),
    "one long number": ("tp_size: " + "1" * HALF, "PL010"),
    "one long anchor": ("tp_sise: &" + "a" * HALF + " b", "PL008"),
    "one long alias": ("tp_size: *" + "a" * HALF, "PL006"),
    "one long tag": ("tp_size: !" + "a" * HALF + " b", "PL006"),
    "backslashes": ('a: "' + "\\\\" * (HALF // 2), "PL001"),
    "documents": ("---\n" * (HALF // 4), "PL004"),
    "many unknown fields": ("tp_size: 1\n" + "".join(f"tp_sizf{i}: 2\n" for i in range(4_000)), "PL008"),
    "many bare rules": ("".join(f"a{i}..b: c\n" for i in range(4_000)), "PL021"),
    "many bad keys": ("tp_plan:\n" + "".join(f" a.{i}..b: c\n" for i in range(4_000)), "PL021"),
    "many duplicates": ("a: b\n" * 4_000, "PL007"),
    "many requirements": ("require:\n" + "- a\n" * 8_000, "PL041"),
    "long key": ("tp_plan: {" + "a." * 500 + "b: c}", "PL021"),
    "wide alternations": ("tp_plan:\n  a." + "{a,b}" * 80 + ": c", "PL023"),
    "long requirement": ("require: '" + "(" * HALF + "'", "PL041"),
    "billion laughs": ("a: &a [x,x,x,x,x,x,x,x,x]\n" + LAUGHS, "PL006"),
}


@pytest.mark.parametrize("kind", BIG)
def test_big_texts(kind: str) -> None:
    text, code = BIG[kind]
    _, found = parse_text(text, "plan.yaml")
    assert len(found) <= MAX_FINDINGS + 1
    assert found[0].code == code
    if len(found) > MAX_FINDINGS:
        assert found[-1].code == "PL013"
    assert all(len(f.message) < 500 for f in found)


def codes(path: Path) -> list[str]:
    plan, found = parse_plan(path)
    assert plan is None
    return [f.code for f in found]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x80\x04\x95\x10\x00\x00\x00", "binary"),
        (b"a: b\x00", "binary"),
        ("a: b".encode("utf-16"), "UTF-16"),
        (b"model: caf\xe9\n", "byte 10 (0xe9)"),
        (b"#" * (MAX_BYTES + 1), "262,145 bytes"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)
    _, found = parse_plan(path)
    assert [f.code for f in found] == ["PL002"]
    assert word in found[0].message


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "fifo", tmp_path / "loop", Path("/dev/zero")):
        assert codes(path) == ["PL002"]
    assert codes(Path("a\0b")) == ["PL002"]
    assert codes(Path("a" * 5000)) == ["PL002"]


@pytest.mark.parametrize("target", ["fifo.yaml", "folder.yaml", "missing.yaml", "binary.yaml", "a\\0b.yaml"])
def test_extends_of_what_is_no_file(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\0")
    path = tmp_path / "plan.yaml"
    path.write_text(f'tp_size: 2\nextends: "{target}"\n')
    plan, found = parse_plan(path)
    assert [(f.code, f.span.line if f.span else 0) for f in found] == [("PL012", 2)]
    assert plan is not None
    assert plan.sizes["tp_size"].value == 2


def test_a_file_that_is_no_plan_is_not_quoted(tmp_path: Path) -> None:
    """A plan from elsewhere can't make planc print a file that is none of its business."""
    (tmp_path / "secret").write_text("password\n")
    path = tmp_path / "plan.yaml"
    path.write_text("extends: secret\n")
    plan, found = parse_plan(path)
    assert [f.code for f in found] == ["PL012"]
    assert plan is not None
    assert list(plan.sources) == [str(path)]


@pytest.mark.parametrize(("length", "expected"), [(MAX_EXTENDS + 1, []), (MAX_EXTENDS + 2, ["PL012"])])
def test_a_long_chain_of_extends(tmp_path: Path, length: int, expected: list[str]) -> None:
    for i in range(length):
        (tmp_path / f"{i}.yaml").write_text("tp_size: 2\n" + (f"extends: {i + 1}.yaml\n" if i + 1 < length else ""))
    _, found = parse_plan(tmp_path / "0.yaml")
    assert [f.code for f in found] == expected


def test_a_circle_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("extends: link.yaml\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "plan.yaml")
    _, found = parse_plan(tmp_path / "plan.yaml")
    assert [f.code for f in found] == ["PL011"]


TOKENS = st.sampled_from(
    ["tp_plan", "tp_size", "a.*.b", "[0-2]", "{a,b}", "colwise", ":", ": ", "- ", "\n", "\n  ", "'", '"', "#", " #",
     "&a", "*a", "!!x ", "|", ">", "?", "? ", ",", "[", "]", "{", "}", "%", "---", "...", "\t", "<<", "~", "2", "\\",
     "é", "\u2028", "\x85", "\x07", "\ufeff", "require", "ep_size <= 8", "=", "(", ")"]
)  # fmt: skip


@given(st.lists(TOKENS, max_size=25).map("".join))
@example("&a\u2028tp_plan\x85!!x ")
@example("%YAML 1.10\n---\ntp_size: 2\n")
@example("tp_sizeint !!: &size\n")
@example("{&a }\n")
def test_no_text_raises(text: str) -> None:
    plan, found = parse_text(text, "plan.yaml")
    assert plan is not None or found
    lines = text.removeprefix("\ufeff").replace("\r", "\n").split("\n")
    for finding in found:
        assert finding.span is not None
        assert 1 <= finding.span.line <= finding.span.end_line <= len(lines)
        if finding.span.line == finding.span.end_line:
            assert finding.span.column <= finding.span.end_column
        assert 1 <= finding.span.column <= len(lines[finding.span.line - 1]) + 1
        assert 1 <= finding.span.end_column <= len(lines[finding.span.end_line - 1]) + 1
    formatted, refused = format_text(text, "plan.yaml")
    assert (formatted is None) == bool(refused)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.3", "1.10", "2.0", "9.99", "x", "1"])
def test_other_versions_of_yaml_are_refused(version: str) -> None:
    _, found = parse_text(f"# a plan\n%YAML {version}\n---\ntp_size: 2\n", "plan.yaml")
    assert [f.code for f in found] in (["PL006"], ["PL001"])
    assert found[0].span is not None and found[0].span.line == 2
    plan, found = parse_text("%YAML 1.2\n---\ntp_size: 2\n", "plan.yaml")
    assert plan is not None and not found


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
def test_line_ends_of_yaml_1_1_are_ordinary_characters(end: str) -> None:
    """YAML 1.2.2, section 5.4: in a comment they end nothing, in a value they stay."""
    text = f"tp_size: 2  # a{end}fsdp_size: 3\nmodel: a{end}\ue000b\n"
    plan, found = parse_text(text, "plan.yaml")
    assert plan is not None and not found
    assert dict.fromkeys(plan.sizes) == {"tp_size": None}
    assert plan.model is not None and plan.model.value == f"a{end}\ue000b"
    formatted, _ = format_text(text, "plan.yaml")
    assert formatted is not None and f"# a{end}fsdp_size: 3\n" in formatted
    assert format_text(formatted, "plan.yaml")[0] == formatted


@given(st.binary(max_size=60))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    plan, found = parse_plan(path)
    assert plan is not None or found
