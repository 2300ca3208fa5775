"""Runs of several processes: what they give, how they fail, and that nothing is left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from planc.runtime.launch import launch
from tests.runtime.models import batch, build

pytestmark = pytest.mark.ranks
SCRIPT = """
import os, sys, torch, planc
folder, target = sys.argv[1:]
model = planc.from_pretrained(folder)
ids = torch.load(target + ".ids")
logits = model(input_ids=ids).logits
logits.sum().backward()
gradient = model.model.layers[0].mlp.down_proj.weight.grad.full_tensor()
if os.environ["RANK"] == "1":
    torch.save((logits.detach(), gradient), target)
print("through", os.environ["RANK"])
"""


def planc(*words: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planc", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    build("llama").save_pretrained(path)
    return path


def test_apply_says_what_each_rank_holds_and_read(folder: Path) -> None:
    run = planc("apply", folder, "--tp-size", 2, "--train", "--json")
    assert run.returncode == 0, run.stderr
    ranks = json.loads(run.stdout)["ranks"]
    assert [r["rank"] for r in ranks] == [0, 1]
    model = build("llama")
    norms = [p for name, p in model.named_parameters() if "norm" in name]
    whole = sum(p.numel() * 4 for p in model.parameters())
    replicated = sum(p.numel() * 4 for p in norms)
    assert {r["bytes_read"] for r in ranks} == {(whole - replicated) // 2 + replicated}
    assert all(r["bytes_held"] >= r["bytes_read"] and r["finite"] for r in ranks)


def test_files_of_the_current_folder_are_not_run(folder: Path, tmp_path: Path) -> None:
    """Inside a checkpoint folder, which is data, a file that is named like a library stays data."""
    for name in ("safetensors", "transformers", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w')\nraise SystemExit(7)\n")
    command = [sys.executable, "-P", "-m", "planc", "apply", str(folder), "--tp-size", "2", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment(), cwd=tmp_path)
    assert (run.returncode, sorted(path.name for path in tmp_path.glob("ran-*"))) == (0, []), run.stderr


def test_a_script_finds_its_program(folder: Path, tmp_path: Path) -> None:
    script, target = tmp_path / "train.py", tmp_path / "logits"
    script.write_text(SCRIPT)
    torch.save(batch(), f"{target}.ids")
    run = planc("apply", folder, "--tp-size", 2, "--nproc", 2, "--", script, folder, target)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n"))[-2:] == ["through 0", "through 1"]
    model = build("llama")
    expected = model(batch()).logits
    expected.sum().backward()
    logits, gradient = torch.load(target)
    torch.testing.assert_close(logits, expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient, model.model.layers[0].mlp.down_proj.weight.grad, rtol=1e-4, atol=1e-4)


def test_a_script_finds_what_was_chosen(folder: Path, tmp_path: Path) -> None:
    """Without choices of its own; the program is compiled for the dtype."""
    script = tmp_path / "look.py"
    script.write_text(
        "import sys, planc\n"
        "model = planc.from_pretrained(sys.argv[1])\n"
        "print(model.dtype, model.config._attn_implementation, model.config._experts_implementation)\n"
    )
    chosen = ["--dtype", "bfloat16", "--attn-implementation", "eager", "--experts-implementation", "batched_mm"]
    run = planc("apply", folder, "--tp-size", 2, *chosen, "--", script, folder)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["torch.bfloat16 eager batched_mm"] * 2


def test_apply_loads_in_another_dtype(folder: Path, tmp_path: Path) -> None:
    """Half the bytes are held, and saved."""
    run = planc("apply", folder, "--tp-size", 2, "--dtype", "bfloat16", "--save", tmp_path / "saved", "--json")
    assert run.returncode == 0, run.stderr
    model = build("llama")
    expected = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    found = load_file(tmp_path / "saved" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_damaged_checkpoint_is_told_once(folder: Path, tmp_path: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-9])
    run = planc("apply", folder, "--tp-size", 2, "--checkpoint", tmp_path)
    told = [line for line in run.stderr.splitlines() if line.startswith("planc: ")]
    assert (run.returncode, len(told)) == (2, 1)
    assert f"{tmp_path}/model.safetensors is damaged or truncated" in told[0]
    assert "Traceback" not in run.stderr


def test_a_plan_that_one_rank_cant_compile_ends_all(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    size = "3 if os.environ['RANK'] == '1' else 2"
    code = f"import os, planc; planc.from_pretrained({str(folder)!r}, tp_size={size})"
    assert launch(2, python(code), {"OMP_NUM_THREADS": "1"}) == 2
    told = capfd.readouterr().err.splitlines()
    assert told
    assert all(line.startswith("planc: rank 1: PL302: `q_proj` splits 4 heads over tp_size=3") for line in told)


def test_a_faulty_plan_starts_nothing(folder: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("tp_size: 3\ntp_plan:\n  model.layers.*.mlp.up_prj: colwise\n")
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'started')!r}, 'w')")
    run = planc("apply", folder, plan, "--", script)
    assert run.returncode == 1
    assert "error[PL101]" in run.stdout
    assert not (tmp_path / "started").exists()


def test_too_large_a_model_is_refused() -> None:
    run = planc("apply", "llama-3.1-405b", "--tp-size", 2)
    assert run.returncode == 2
    assert "the model doesn't fit: " in run.stderr


def test_the_demo_runs() -> None:
    run = planc("demo")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("of one process") == 4
    assert "error[PL301]" in run.stdout


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_exit_status_is_the_ranks_own(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(60)"
    assert launch(3, python(code), {}) == 7
    assert capfd.readouterr().err == "planc: rank 1 ended with status 7\n"


def test_a_killed_rank_ends_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, time; os.environ['RANK'] == '2' and os.kill(os.getpid(), 9); time.sleep(60)"
    assert launch(3, python(code), {}) == 1
    assert capfd.readouterr().err == "planc: rank 2 was ended by SIGKILL\n"


def test_ranks_that_end_well() -> None:
    assert launch(2, python("pass"), {}) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(number: signal.Signals, tmp_path: Path) -> None:
    rank = f"import os, time; open(f'{tmp_path}/' + os.environ['RANK'], 'w').write(str(os.getpid())); time.sleep(60)"
    start = f"launch(2, [sys.executable, '-c', {rank!r}], {{}})"
    code = f"import sys; from planc.runtime.launch import launch; sys.exit({start})"
    process = subprocess.Popen(python(code), env=environment())
    while not all((tmp_path / str(rank)).exists() and (tmp_path / str(rank)).read_text() for rank in range(2)):
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / str(rank)).read_text()), 0)
