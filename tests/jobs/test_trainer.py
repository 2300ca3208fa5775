"""The scripts of docs/trainer.md, run as they stand at each layout, against the same scripts in one process.

The Trainer with accumulation, warm-up, clipping, evaluation and saving; resumed from what another layout saved; on a
model that transformers' own loader sharded by the plan; TRL's SFTTrainer; a loop with accelerate. Each script is run at
some layouts; `PLANC_SWEEP=1 pytest tests/jobs/test_trainer.py` runs each at all.
"""

import copy
import os
import pickle
import re
import runpy
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.distributed import DistributedConfig

import planc
from planc.runtime.errors import RunError
from planc.runtime.session import Session
from planc.runtime.training import _places
from tests.proof.models import VOCABULARY, build
from tests.runtime.ranks import run_ranks, start_ranks

accelerate = pytest.importorskip("accelerate", reason="the extra `runtime` brings it")
pytestmark = pytest.mark.ranks
PAGE = Path(__file__).resolve().parents[2] / "docs" / "trainer.md"
SCRIPTS = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))
FINE_TUNES = bool(find_spec("trl") and find_spec("datasets"))
# Rows of one backward pass over all ranks; on the page each rank has 2.
ROWS = 4
OURS = 'planc.from_pretrained("model", "plan.yaml", dtype="float32")'
THEIRS = """__import__("transformers").AutoModelForCausalLM.from_pretrained(
    "model", dtype="float32", distributed_config=planc.distributed_config("plan.yaml", "model")
)"""
ROWS_FILE = """
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, count, even):
        generator = torch.Generator().manual_seed(3)
        self.rows = [torch.randint(3, {vocabulary}, (8,), generator=generator) for _ in range(count)]
        self.even = even

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        labels = self.rows[index].clone()
        labels[: 0 if self.even else index % 5] = -100
        return {{"input_ids": self.rows[index], "labels": labels}}


training_rows, evaluation_rows = Rows(24, even={even}), Rows({evaluated}, even=False)
try:
    from datasets import Dataset as Texts
except ImportError:
    texts = None
else:
    words = [" ".join(f"w{{int(i)}}" for i in row[: 4 + n % 5]) for n, row in enumerate(training_rows.rows)]
    texts = Texts.from_list([{{"text": text}} for text in words])
"""


@dataclass(frozen=True)
class Job:
    """A model, the sizes to train it at, how many ranks read rows of their own, and what is run."""

    model: str
    sizes: dict[str, Any]
    data_ranks: int
    runs: tuple[str, ...]

    @property
    def ranks(self) -> int:
        return prod(self.sizes.get(name, 1) for name in ("tp_size", "fsdp_size", "dp_replicate_size"))

    # How many rows are evaluated; the Trainer weighs a short last batch otherwise where ranks read several.
    evaluated: int = 8


ALL_REDUCE = {"tp_size": 2, "ep_size": 2, "ep_implementation": "all_reduce"}
SWEEP = "PLANC_SWEEP" in os.environ
EVERYTHING = (
    "train", "resume", "theirs", "their resume", "smooth", "their smooth", "tune", "loop", "their loop",
)  # fmt: skip
# What one process runs for those that it doesn't have.
ALONE = {
    "resume": "train", "theirs": "train", "their resume": "train", "their smooth": "smooth", "their loop": "loop",
}  # fmt: skip
JOBS = {
    "tp2": Job("llama", {"tp_size": 2}, 1, ("train", "their resume", "tune", "loop"), evaluated=7),
    "fsdp4": Job("llama", {"fsdp_size": 4}, 4, ("resume", "loop")),
    "tp2·fsdp2": Job("llama", {"tp_size": 2, "fsdp_size": 2}, 2, ("smooth", "their smooth")),
    "tp2·ep2": Job("mixtral", ALL_REDUCE, 1, ("theirs", "their loop")),
    "tp2·fsdp2·ep4": Job("mixtral", {"tp_size": 2, "fsdp_size": 2, "ep_size": 4}, 2, ("resume", "tune")),
}


def tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    made: Any = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def prepared(folder: Path, job: Job, sizes: dict[str, Any]) -> Path:
    """A working directory with what the page's scripts read, for a job at `sizes`."""
    build(job.model, num_hidden_layers=1).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    (folder / "plan.yaml").write_text("\n".join(f"{name}: {value}" for name, value in sizes.items()) or "{}")
    for name, text in SCRIPTS.items():
        adapted = re.sub(r"(batch_size=)2\b", rf"\g<1>{ROWS // (job.data_ranks if sizes else 1)}", text)
        assert adapted.count(OURS) == 1
        (folder / name).write_text(adapted)
    smooth = (folder / "train.py").read_text().replace("max_steps=3", "max_steps=2, label_smoothing_factor=0.1")
    (folder / "smooth.py").write_text(smooth)
    for file in (*SCRIPTS, "smooth.py"):
        (folder / f"their_{file}").write_text((folder / file).read_text().replace(OURS, THEIRS))
    return folder


def run(script: str, job: Job, *arguments: str, even: bool = False) -> dict[str, Any]:
    """What a script of this rank's working directory leaves, its rows written before."""
    torch.distributed.barrier()  # others may still read what was saved
    if torch.distributed.get_rank() == 0:
        shutil.rmtree("trained", ignore_errors=True)
        Path("rows.py").write_text(ROWS_FILE.format(vocabulary=VOCABULARY, even=even, evaluated=job.evaluated))
    torch.distributed.barrier()
    sys.modules.pop("rows", None)
    sys.argv = [script, *arguments]
    left = runpy.run_path(script)
    torch.distributed.barrier()
    return left


def logged(left: dict[str, Any]) -> list[dict[str, float]]:
    names = ("loss", "grad_norm", "learning_rate", "eval_loss", "num_tokens", "mean_token_accuracy")
    return [{n: log[n] for n in names if n in log} for log in left["trainer"].state.log_history[:-1]]


def trained(folder: Path, job: Job, runs: tuple[str, ...], earlier: Path | None) -> dict[str, Any]:
    """What the scripts of the page log on this rank, and the weights that they save."""
    os.chdir(folder)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    sys.path.insert(0, ".")
    found: dict[str, Any] = {}
    if "train" in runs:
        found["train"] = logged(run("train.py", job)), load_file("trained/model.safetensors")
    for what, script in {"resume": "train.py", "their resume": "their_train.py"}.items():
        if what in runs:
            torch.distributed.barrier()
            if torch.distributed.get_rank() == 0:
                shutil.rmtree("runs", ignore_errors=True)
                shutil.copytree(f"{earlier}/runs/checkpoint-2", "runs/checkpoint-2")
            left = run(script, job, "--resume")
            found[what] = logged(left), load_file("trained/model.safetensors")
            put_back_best(left["trainer"])
    for what, script in {"theirs": "their_train.py", "smooth": "smooth.py", "their smooth": "their_smooth.py"}.items():
        if what in runs:
            found[what] = logged(run(script, job)), load_file("trained/model.safetensors")
    if "tune" in runs and FINE_TUNES:
        found["tune"] = logged(run("finetune.py", job)), {}
    for what, script in {"loop": "loop.py", "their loop": "their_loop.py"}.items():
        if what in runs:
            loop = run(script, job, even=True)
            logs = [*({"loss": loss} for loss in loop["losses"]), *({"norm": norm} for norm in loop["norms"])]
            found[what] = logs, load_file("trained/model.safetensors")
            if job.ranks == torch.distributed.get_world_size() and what == "loop":
                with pytest.raises(RunError, match=r"sharded already.*parallelism_config=planc\.parallelism_config"):
                    DistributedDataParallel(loop["model"])
    if Session.current is not None:
        Session.current.close()
    return found


def put_back_best(trainer: Any) -> None:
    """Check that the Trainer finds the weights of its best checkpoint again, as `load_best_model_at_end` has it."""
    trainer.state.best_model_checkpoint = "runs/checkpoint-2"
    trainer._load_best_model()
    trainer.save_model("best")
    torch.distributed.barrier()
    best, found = (load_file(f"{folder}/model.safetensors") for folder in ("runs/checkpoint-2", "best"))
    assert best.keys() == found.keys() and all(torch.equal(found[name], best[name]) for name in best)


def alone_too(key: tuple[str, int]) -> tuple[str, ...]:
    """What one process must run for the jobs of a model and a number of evaluated rows."""
    jobs = [job for job in JOBS.values() if (job.model, job.evaluated) == key]
    needed = {ALONE.get(run, run) for job in jobs for run in job.runs}
    return ("train", *(run for run in ("smooth", "tune", "loop") if SWEEP or run in needed))


def test_the_page_trains_as_one_process(tmp_path: Path) -> None:
    alone: dict[tuple[str, int], dict[str, Any]] = {}
    earlier: dict[str, Path] = {}
    for name, job in JOBS.items():
        key = job.model, job.evaluated
        if key not in alone:
            folder = prepared(tmp_path / f"alone {len(alone)}", job, {})
            alone[key] = run_ranks(1, trained, folder, job, alone_too(key), None)[0]
            earlier.setdefault(job.model, folder)
        folder = prepared(tmp_path / name, job, job.sizes)
        runs = EVERYTHING if SWEEP else job.runs
        for rank, found in enumerate(run_ranks(job.ranks, trained, folder, job, runs, earlier[job.model])):
            assert found.keys() == {run for run in runs if run != "tune" or FINE_TUNES}
            for what, (logs, saved) in found.items():
                compare(logs, saved, alone[key][ALONE.get(what, what)], f"{name}, {what}, rank {rank}")
        if "train" in runs:
            earlier[job.model] = folder


def compare(logs: list[Any], saved: dict[str, Any], alone: tuple[list[Any], dict[str, Any]], where: str) -> None:
    """Check what a rank logged and saved against what one process did."""
    expected, weights = alone
    assert len(expected) > 1
    # What is resumed has the logs of the steps before from the checkpoint: those of the run that saved it.
    assert logs[-len(expected) :] == [pytest.approx(log, rel=1e-4) for log in expected], where
    assert saved.keys() == weights.keys()
    for name, tensor in weights.items():
        # By norms, as AdamW moves an entry whose gradient is rounding alone as far as others: a hundredth of a step.
        assert (saved[name] - tensor).norm() <= 2e-5 * tensor.norm(), f"{where}: {name}"


def test_the_sft_trainer_was_tried() -> None:
    if not FINE_TUNES:
        pytest.skip("TRL or datasets isn't installed")
    assert any("tune" in job.runs for job in JOBS.values())


def test_groups_are_found_by_their_parameters() -> None:
    """The Trainer makes as many groups as there are meshes, and they differ between layouts."""
    assert _places([["a", "b"], ["c"]], [["a"], ["c"], [], ["b"]]) == [0, 1, 0, 0]


def sizes(config: Any) -> tuple[int, int, int]:
    return config.dp_replicate_size, config.dp_shard_size, config.tp_size


def test_accelerate_is_told_the_sizes() -> None:
    config = planc.parallelism_config(DistributedConfig(tp_size=2, fsdp_size=4, dp_replicate_size=2))
    assert sizes(config) == (1, 8, 2)
    # `TrainingArguments` are saved beside the weights, and read where planc isn't installed.
    again = pickle.loads(pickle.dumps(config))
    assert type(again) is accelerate.ParallelismConfig and sizes(again) == sizes(config)
    assert copy.deepcopy(config) is config
    program = planc.compile("llama-3.1-8b", tp_size=2)
    assert sizes(planc.parallelism_config(program)) == (1, 1, 2)
    assert planc.parallelism_config(DistributedConfig()) is None


def test_what_it_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="train no pipelines"):
        planc.parallelism_config(DistributedConfig(pp_size=2))
    model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, vocab_size=8))
    assert planc.parallelism_config(model) is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match="not sharded"):
        planc.parallelism_config(model)


@pytest.mark.parametrize(
    ("kind", "processes", "says"),
    [
        ("FSDP", 4, "start the script without accelerate's FSDP config"),
        ("DEEPSPEED", 4, "start the script without accelerate's DeepSpeed config"),
        # CPUs that accelerate wasn't told of: it would multiply every loss by 0.
        ("NO", 1, "over 4 processes, and accelerate sees 1: on CPUs set `ACCELERATE_USE_CPU=true`"),
    ],
)
def test_what_accelerate_would_do_wrong_is_refused(kind: str, processes: int, says: str) -> None:
    found: Any = SimpleNamespace(
        distributed_type=getattr(accelerate.DistributedType, kind), num_processes=processes, is_fsdp2=kind == "FSDP"
    )
    config: Any = planc.parallelism_config(DistributedConfig(tp_size=2, fsdp_size=2))
    with pytest.raises(RunError, match=re.escape(says)):
        config._validate_accelerator(found)


class Stream(torch.utils.data.IterableDataset[int]):
    """Rows that one process deals out, unless it is told not to."""

    def __iter__(self) -> Any:
        return iter(range(8))


def dealt_out(sizes: dict[str, int]) -> Any:
    """What accelerate says to a stream that one process deals out, on a mesh of pretended ranks."""
    from accelerate.data_loader import prepare_data_loader

    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=prod(sizes.values()))
    config: Any = planc.parallelism_config(DistributedConfig(**sizes))
    mesh = config.get_device_mesh("cpu")
    loader = torch.utils.data.DataLoader(Stream(), batch_size=1)
    try:
        made = prepare_data_loader(
            loader,
            num_processes=prod(sizes.values()),
            process_index=0,
            dispatch_batches=True,
            put_on_device=True,
            torch_device_mesh=mesh,
        )
    except ValueError as error:
        return str(error)
    return mesh.mesh_dim_names, type(made).__name__, made.submesh_tp is not None


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ({"tp_size": 2}, (("tp",), "DataLoaderDispatcher", True)),
        # Were it told of a `tp` axis, it would give every rank the same rows.
        ({"fsdp_size": 4}, (("dp_shard",), "DataLoaderDispatcher", False)),
        ({"tp_size": 2, "fsdp_size": 2}, "TP + (DP/FSDP) is not yet supported in dispatch mode"),
    ],
)
def test_rows_that_one_process_deals_out(layout: dict[str, int], found: Any) -> None:
    assert [outcome.result for outcome in start_ranks(1, dealt_out, layout, init=False)] == [found]
