"""`planc layouts`: every layout of a number of ranks, judged by the checker."""

import itertools
import json
import subprocess
import sys
from math import prod

import pytest

import planc
from planc.cli.main import run
from planc.layouts.candidates import dense_meshes, divisors

SIZES = ("pp_size", "dp_replicate_size", "fsdp_size", "tp_size", "ep_size")


@pytest.mark.parametrize("world_size", [1, 6, 8, 36])
def test_every_mesh_once(world_size: int) -> None:
    found = [tuple(getattr(layout, name) for name in SIZES[:4]) for layout in dense_meshes(world_size)]
    sizes = itertools.product(divisors(world_size), repeat=4)
    assert sorted(found) == sorted(four for four in sizes if prod(four) == world_size)


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run(["layouts", *words])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "llama-3.1-8b"])
def test_those_without_errors(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The list holds what `check` has no error for, and nothing else."""
    status, out = listed(capsys, model, "--world-size", "4", "--output-format", "json")
    document = json.loads(out)
    found = {tuple(layout[name] for name in SIZES): layout for layout in document["layouts"]}
    assert (status, document["world_size"]) == (0, 4)
    for sizes in itertools.product([1, 2, 4], repeat=5):
        if prod(sizes[:4]) == 4:
            plan = {"model": model, **dict(zip(SIZES, sizes, strict=True))}
            report = planc.check(None, plan, world_size=4)
            assert report.ok == (sizes in found), sizes
            if report.ok:
                assert report.coverage is not None
                assert found[sizes]["bytes_per_rank"] == report.coverage.bytes_per_rank
                assert found[sizes]["batches"] == sizes[1] * sizes[2]


def test_lightest_first_and_given_sizes_kept(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("qwen3-30b-a3b", "--world-size", "8", "--ep-size", "8", "--output-format", "json")
    layouts = json.loads(listed(capsys, *words)[1])["layouts"]
    held = [layout["bytes_per_rank"] for layout in layouts]
    assert held == sorted(held) and {layout["ep_size"] for layout in layouts} == {8}
    assert [(layout["fsdp_size"], layout["expert_copies"]) for layout in layouts] == [(8, 1), (4, 1), (2, 1)]


def test_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = listed(capsys, "llama-3.1-8b", "--world-size", "3", "--pp-size", "1")
    assert (status, out) == (
        0,
        "llama-3.1-8b: 2 layouts of 3 ranks\n\n"
        "pp  dp_replicate  fsdp  tp  ep  batches  expert copies  a rank holds  warnings\n"
        " 1             1     3   1   1        3              -        5.4 GB         -\n"
        " 1             3     1   1   1        3              -       16.1 GB         -\n",
    )


def test_none(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = listed(capsys, "llama-3.1-8b", "--world-size", "3", "--tp-size", "3")
    assert (status, out) == (1, "llama-3.1-8b takes no layout of 3 ranks; `planc check` with the sizes says why\n")


@pytest.mark.parametrize("words", [["qwen3-30b-a3b"], ["qwen3-30b-a3b", "--world-size", "99999999"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, *words)[0] == 2


@pytest.mark.parametrize(
    "words", [["layouts", "llama-3.1-8b", "--world-size", "4"], ["show", "--tp-size", "2", "--output-format", "svg"]]
)
def test_without_torch(words: list[str]) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        f"from planc.cli.main import run; sys.exit(run({words!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
