"""docs/extending.md says what happens: its files are written, its commands run, and what it shows is what comes out."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import planc
from planc.cli.main import run
from planc.styles import registry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
PLANS = PAGE.parents[1] / "plans" / "custom"
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
FILES = {name: text for _, name, text in BLOCKS if name}
MODULES = [name.removesuffix(".py") for name in FILES if name.startswith("my_")]
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": 64,
}  # fmt: skip
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page with the lines that it shows."""
    for language, _, text in BLOCKS:
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                yield command, shown


COMMANDS = list(commands())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints that the page speaks of, small."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SMALL)).save_pretrained(folder / "my-llama")
    mixture = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**SMALL, **mixture)).save_pretrained(folder / "my-moe")
    return folder


@pytest.fixture
def page(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the page's files and models; modules that are imported there are forgotten again."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for model in models.iterdir():
        (tmp_path / model.name).symlink_to(model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.ranks
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_prints_what_the_page_shows(
    command: str, shown: list[str], page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, *words = command.split()
    if program == "torchrun":
        done = subprocess.run([sys.executable, *TORCHRUN, *words], capture_output=True, text=True)
        status, out = done.returncode, done.stdout + done.stderr
    else:
        assert program == "planc"
        status = run(words)
        captured = capfd.readouterr()
        out = captured.err + captured.out
    assert status == ("error[" in "".join(shown)), out
    lines = iter(out.splitlines())
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, found) for found in lines), f"{line}\n--\n{out}"


def one_process() -> float:
    model = LlamaForCausalLM.from_pretrained("my-llama")
    ids = torch.arange(2, 18)[None]
    return float(model(input_ids=ids, labels=ids).loss.detach())


@pytest.mark.ranks
def test_the_script_needs_no_import_after_apply(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And what it computes is what one process computes."""
    script = FILES["train.py"].replace("import my_styles\n", "").replace(', "plan.yaml"', "")
    (page / "train.py").write_text(script)
    assert run(["apply", "my-llama", "plan.yaml", "--styles-module", "my_styles", "--", "train.py"]) == 0
    losses = re.findall(r"loss ([\d.]+)", capfd.readouterr().out)
    assert losses == [f"{one_process():.4f}"] * 2


@pytest.fixture
def installed(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's modules as an installed package, with its entry points."""
    info = page / "site" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    groups = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(\S+) = "(.*)"', FILES["pyproject.toml"], re.MULTILINE)
    assert len(groups) == 2
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[{g}]\n{name} = {module}\n" for g, name, module in groups))
    for name in MODULES:
        (page / f"{name}.py").rename(page / "site" / f"{name}.py")
    monkeypatch.syspath_prepend(str(info.parent))
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


CHECK = """
import sys
from planc.cli.main import run
status = [run(["check", model, plan]) for model, plan in (("my-llama", "plan.yaml"), ("my-moe", "experts.yaml"))]
print(status, [m for m in ("torch", "transformers", "my_styles", "my_experts") if m in sys.modules])
"""


def test_entry_points_are_known_without_loading_them(installed: None, page: Path) -> None:
    for model in ("my-llama", "my-moe"):
        planc.check(model)  # the manifest, which needs torch once
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{page / 'site'}"}
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[0, 0] []", done.stdout + done.stderr
    assert done.stdout.count("unknown[PL420]") == 2


@pytest.mark.ranks
@pytest.mark.parametrize(("model", "plan"), [("my-llama", "plan.yaml"), ("my-moe", "experts.yaml")])
def test_entry_points_are_loaded_to_run(model: str, plan: str, installed: None) -> None:
    assert planc.verify(model, plan).verdict.value == "proved"
    # Loaded by then, the style is watched.
    expected = [] if plan == "plan.yaml" else ["PL420"]
    assert [d.code for d in planc.check(model, plan).diagnostics if d.severity.value == "unknown"] == expected


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("plan", "module", "fewer"),
    [
        ("llama-3.1-8b.tp2-custom-style", "my_styles", ()),
        ("qwen3-30b-a3b.fsdp8-ep8-custom-implementation", "my_experts", ("--fsdp-size", "4", "--ep-size", "4")),
    ],
)
def test_shipped_plans_with_the_pages_modules(
    plan: str, module: str, fewer: tuple[str, ...], page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On four ranks in the place of eight; on all of them with `PLANC_SWEEP=1`."""
    words = [str(PLANS / f"{plan}.yaml"), "--styles-module", module]
    assert run(["check", *words]) == 0
    assert "error" not in capfd.readouterr().out
    assert run(["verify", *words, *(() if os.environ.get("PLANC_SWEEP") else fewer)]) == 0
    assert ": proved" in capfd.readouterr().err


def test_every_shipped_plan_of_that_kind_is_tried() -> None:
    assert len(list(PLANS.glob("*.yaml"))) == 2
