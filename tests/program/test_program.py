"""The program file: canonical, hashed, and no trust in what it reads."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planc.ir.operations import CustomStyle
from planc.layouts.layout import Layout
from planc.layouts.placement import Partial, Replicate, Shard, StridedShard
from planc.program.decoding import parse_placement
from planc.program.encoding import in_canonical_order
from planc.program.errors import ProgramError
from planc.program.program import Instruction, Program
from tests.program.models import another, compiled, mixture

PLANS: dict[str, dict[str, object]] = {
    "tp": {"tp_size": 2},
    "tp fsdp ep": {"tp_size": 2, "fsdp_size": 4, "ep_size": 4},
    "hsdp": {"dp_replicate_size": 2, "fsdp_size": 2},
    "tp pp": {"tp_size": 2, "pp_size": 2},
    "nothing": {},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_file_reads_back_as_it_was(plan: dict[str, object], tmp_path: Path) -> None:
    program = compiled(mixture(), plan)
    program.save(tmp_path / "program.json")
    again = Program.load(tmp_path / "program.json")
    assert again == program
    assert again.to_json() == program.to_json()
    again.require(mixture())


def test_operations_of_custom_styles_read_back() -> None:
    """Their `target` is the name of a module or parameter, no placement."""
    custom = CustomStyle("lm_head", False, "tp", "mine", (("width", 2), ("kind", "odd")))
    program = replace(compiled(mixture()), layout=Layout(tp_size=2), instructions=(Instruction("tp", custom),))
    assert Program.from_json(program.to_json(), "program.json") == program


def test_layers_of_a_kind_are_one_entry() -> None:
    content = json.loads(compiled(mixture(), {"tp_size": 2}).to_json())
    assert [group.get("at") for group in content["groups"]] == [None, ["0-2"]]


def test_rules_for_some_layers_only_keep_their_provenance() -> None:
    """A rule for one layer does the same as the one for all: one entry, two origins."""
    plan = {"tp_size": 2, "tp_plan": {"model.layers.1.self_attn.q_proj": "colwise"}}
    program = compiled(mixture(), plan)
    again = Program.from_json(program.to_json(), "program.json")
    assert again == program
    lines = {
        i.operation.module: i.rule.file
        for i in again.instructions
        if i.rule and getattr(i.operation, "module", "").endswith("q_proj")
    }
    assert [lines[f"model.layers.{layer}.self_attn.q_proj"] for layer in range(3)] == [
        "<ToyForCausalLM.tp_plan>",
        "plan.yaml",
        "<ToyForCausalLM.tp_plan>",
    ]


def test_the_hash_is_over_what_is_done_and_to_which_model() -> None:
    base = compiled(mixture(), {"tp_size": 2})
    same = compiled(mixture(), {"tp_size": 2, "tp_plan": {"model.layers.*.self_attn.q_proj": "colwise"}})
    named = compiled(mixture(name="another name"), {"tp_size": 2})
    assert base.hash == same.hash == named.hash
    others = [
        compiled(mixture(), {"tp_size": 4}),
        compiled(mixture(), {"tp_size": 2, "tp_plan": {"lm_head": "colwise"}}),
        compiled(another(), {"tp_size": 2}),
        replace(base, instructions=base.instructions[:-1]),
    ]
    assert len({base.hash, *(o.hash for o in others)}) == 5


def test_another_model_is_refused() -> None:
    program = compiled(mixture(), {"tp_size": 2})
    with pytest.raises(ProgramError, match="compile the plan again"):
        program.require(another())


@pytest.mark.parametrize(
    "placement", [Replicate(), Partial(), Shard(0), Shard(-1), StridedShard(1, 2), StridedShard(-1, 16)], ids=str
)
def test_placements_as_text(placement: Replicate | Partial | Shard | StridedShard) -> None:
    assert parse_placement(str(placement)) == placement


@pytest.mark.parametrize("text", ["", "S", "S()", "S(1", "S(a)", "S(0, parts=)", "S(0,parts=2)", "RR", None, 3, ["R"]])
def test_what_is_no_placement(text: object) -> None:
    with pytest.raises(ValueError, match="is not a placement"):
        parse_placement(text)


def set_in(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return change


FIRST = ("groups", 0, "operations", 0)
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "version": (set_in("format_version", to=2), "format_version"),
    "hash": (set_in("hash", to="0" * 64), "was changed after it was compiled"),
    "layout": (set_in("layout", "tp_size", to=4), "was changed after it was compiled"),
    "size zero": (set_in("layout", "tp_size", to=0), "layout.tp_size"),
    "size text": (set_in("layout", "tp_size", to="many"), "layout.tp_size"),
    "unknown field": (set_in("surprise", to=1), "surprise"),
    "manifest": (set_in("model", "manifest", to="0"), "was changed after it was compiled"),
    "operation": (set_in(*FIRST, "op", to="run_shell"), "`run_shell` is not an operation"),
    "operation field": (set_in(*FIRST, "code", to="1"), "has no field `code`"),
    "operation type": (set_in(*FIRST, to=7), "groups.0.operations.0"),
    "placement": (set_in(*FIRST, "placement", to="S(x)"), "`S(x)` is not a placement"),
    "axis": (set_in(*FIRST, "axis", to="dp"), "axis"),
    "name of a wrong type": (set_in(*FIRST, "parameter", to=[1]), "parameter"),
    "rule": (set_in(*FIRST, "rule", to=99), "`rule` is 99"),
    "rule of a wrong type": (set_in(*FIRST, "rule", to="first"), "`rule` is first"),
    "plan": (set_in("groups", 0, "plan", to="dp"), "groups.0.plan"),
    "layers": (set_in("groups", 1, "at", to=["0-99999999"]), "more than 1,000,000 operations"),
    "layers without operations": (
        set_in("groups", 1, to={"plan": "tp", "at": ["0-999999999;0-999999999"], "operations": []}),
        "groups.1.operations",
    ),
    "rule for more layers than there are": (
        set_in("groups", 1, "operations", 0, "rule", to={"0-999999999;0-999999999": 0}),
        "`rule` lists more layers than its group, which has 3",
    ),
    "layers listed twice": (set_in("groups", 1, "at", to=["0-2", "1"]), "stands twice"),
    "half of a surrogate pair": (set_in("layout", "ep_implementation", to="\ud800"), "half of a surrogate pair"),
    "a number without end": (set_in("groups", 0, "operations", 2, "size", to=int("9" * 4000)), "more than 18 digits"),
    "not a number": (set_in("groups", 0, "operations", 2, "size", to=float("nan")), "not JSON compliant"),
    "layers of a wrong form": (set_in("groups", 1, "at", to=["all"]), "`all` is not of the form"),
    "layers where none are": (set_in("groups", 0, "at", to=["0-3"]), "layer numbers"),
    "layers twice": (set_in("groups", 1, "at", to=["0;1"]), "layer numbers"),
}


@pytest.mark.parametrize(("change", "says"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_refused_in_words(change: Callable[[dict[str, Any]], None], says: str) -> None:
    content = json.loads(compiled(mixture(), {"tp_size": 2}).to_json())
    change(content)
    with pytest.raises(ProgramError) as refusal:
        Program.from_json(json.dumps(content).encode(), "program.json")
    assert "program.json" in str(refusal.value)
    assert says in str(refusal.value)


def test_a_key_that_stands_twice() -> None:
    content = compiled(mixture(), {"tp_size": 2}).to_json().replace(b'"axis":"tp"', b'"axis":"ep","axis":"tp"', 1)
    with pytest.raises(ProgramError, match="`axis` stands twice in one object"):
        Program.from_json(content, "program.json")


def test_no_order_is_run_but_the_one_that_was_hashed() -> None:
    """Ranks agree on what they run by the hash alone."""
    program = compiled(mixture(), {"tp_size": 2})
    swapped = replace(program, instructions=in_canonical_order(reversed(program.instructions)))
    content = json.loads(swapped.to_json())
    layers, rest = content["groups"]
    content["groups"] = [{**layers, "at": ["2"]}, rest, {**layers, "at": ["0-1"]}]
    assert Program.from_json(json.dumps(content).encode(), "program.json") == swapped


def test_messages_steer_no_terminal_and_end() -> None:
    content = json.loads(compiled(mixture(), {"tp_size": 2}).to_json())
    content["groups"][0]["operations"][0]["\x1b[2J\n" + "x" * 100_000] = 1
    with pytest.raises(ProgramError) as refusal:
        Program.from_json(json.dumps(content).encode(), "program.json")
    assert all(line.isprintable() for line in str(refusal.value).split("\n"))
    error = ProgramError("it is not sound", tuple(f"\x07{'y' * 10_000} {number}" for number in range(10_000)))
    assert len(str(error)) < 100_000
    assert str(error).endswith("(and 9950 more)")
    assert len(error.faults) == 10_000


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format_version": 1}', b"NaN"]
)
def test_what_is_no_program_at_all(content: bytes) -> None:
    with pytest.raises(ProgramError, match=r"`x\.json` is not a program"):
        Program.from_json(content, "x.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="can't read"):
        Program.load(tmp_path / "missing.json")
    with pytest.raises(ProgramError, match="can't read"):
        Program.load(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a file without end")
def test_no_more_is_read_than_a_program_has() -> None:
    with pytest.raises(ProgramError, match="is larger than a program can be"):
        Program.load(Path("/dev/zero"))
