"""The Python facade: from a model and a plan to findings, to a program, to sharded ranks.

Nothing here needs torch before a model must be built or run.
"""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planc.analysis import Analysis, Given, PlanError, PlanLike, Settings, analyse, refutes, with_findings
from planc.diagnostics.diagnostic import Diagnostic, Report
from planc.diagnostics.span import Span
from planc.syntax.plan import SIZE_NAMES, Spanned

# Rules about what transformers' own runtime does in training, by the Trainer or a loop of one's own.
_THEIR_RUNTIME = ("PL415", "PL606")
_THEIR_LOADER = ("PL116",)

if TYPE_CHECKING:
    from typing import TypeVar

    import torch
    from accelerate import ParallelismConfig
    from torch import nn
    from torch.optim import Optimizer
    from transformers import Trainer
    from transformers.distributed import DistributedConfig

    from planc.check.rule import CheckContext
    from planc.program.passes import DumpAfter
    from planc.program.program import Program
    from planc.resolve.resolved import ResolvedPlan
    from planc.verify.outcome import VerifyReport
    from planc.verify.trial import RankKind

    # The name of an implementation, or a mapping from names of sub-configs ("" is the model) to them.
    Implementation = str | Mapping[str, Any] | None
    AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)


def check(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    target: str | None = None,
    gpus_per_node: int | None = None,
    ep_implementation: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    **sizes: int,
) -> Report:
    """Every finding about `plan` for `model`; without a plan, about the model's own.

    `model` is all that MODEL may be on the command line, or None where the plan names it. `sizes` are `tp_size`,
    `ep_size`, `fsdp_size`, `dp_replicate_size` and `pp_size`; they win over the plan's. `world_size` is the number of
    processes that will be started, `gpus_per_node` how many of them share a node (PL219). `select` and `ignore` are
    codes or beginnings of codes. Bad input is a finding, not an exception; only wrong arguments raise TypeError, and
    nodes of no GPU or of more than 65,536 ValueError.
    """
    settings = Settings(world_size, target, tuple(select), tuple(ignore), gpus_per_node=gpus_per_node)
    return analyse(plan, arguments("check", model, ep_implementation, sizes), settings).report


def resolve(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "ResolvedPlan":
    """What every module and parameter gets, and from which rule; arguments as for `check`.

    Raises PlanError where the plan or the model can't be read, or the plan's text has errors.
    """
    given = arguments("resolve", model, ep_implementation, sizes)
    analysis = analyse(plan, given, Settings(world_size, rules=False))
    if analysis.context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    return analysis.context.resolved


def verify(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    ranks: "RankKind" = "threads",
    world_size: int | None = None,
    ep_implementation: str | None = None,
    **sizes: int,
) -> "VerifyReport":
    """Prove or refute `plan` on a small copy of the model; arguments as for `check`.

    `ranks` are `threads` of this process or `gloo` processes. Needs torch and transformers. Bad input is a finding,
    not an exception; what can't be tried is unknown, with the reason.
    """
    from planc.verify.outcome import Verdict, VerifyReport
    from planc.verify.session import verify as verify_context

    analysis = analyse(plan, arguments("verify", model, ep_implementation, sizes), Settings(world_size))
    if analysis.context is None:
        return VerifyReport(Verdict.REFUTED if refutes(analysis.report) else Verdict.UNKNOWN, analysis.report)
    return verify_context(analysis.context, analysis.report, ranks=ranks)


def compile(
    model: str | Path | None,
    plan: PlanLike = None,
    *,
    world_size: int | None = None,
    target: str | None = None,
    ep_implementation: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    **sizes: int,
) -> "Program":
    """The program of `plan` for `model`; other arguments as for `check`.

    `dtype` is for a model that will be in another one than its config says: parameters that stay in float32 there get
    FSDP groups of their own. Raises PlanError, with every finding, where there are errors, ProgramError where a rule
    has no lowering, and ValueError for a dtype that no model can have.
    """
    from planc.model.choices import legal_dtype
    from planc.model.errors import ModelError

    given = arguments("compile", model, ep_implementation, sizes)
    try:
        settings = Settings(world_size, target, dtype=legal_dtype(dtype))
    except ModelError as error:
        raise ValueError(error.message) from None
    return lowered(analyse(plan, given, settings))


def lowered(analysis: Analysis, dump_after: "DumpAfter | None" = None) -> "Program":
    """The program of what was analysed; raises as `compile`."""
    from planc.program.lower import lower

    context = analysis.context
    if context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    return lower(context.plan, context.resolved, context.manifest, dump_after)


def apply(
    model: "nn.Module",
    program: "Program | str | Path | None" = None,
    *,
    dtype: "str | torch.dtype | None" = None,
    attn_implementation: "Implementation" = None,
    experts_implementation: "Implementation" = None,
) -> "nn.Module":
    """Shard `model` in place as `program` (or its file, or the one that `planc apply … -- script` compiled) says.

    The model may be in another dtype than the one that the program was compiled for. `dtype` (None and `auto`: the one
    that it has) and the implementations, as in `from_pretrained`, are put on it first. Every process of the program's
    layout must call it. Raises RunError, with what is legal where an argument isn't, and ProgramError.
    """
    from planc.runtime.apply import apply as run

    return run(model, program, _chosen(dtype, attn_implementation, experts_implementation))


def from_pretrained(
    model: str | Path,
    plan: "PlanLike | Program" = None,
    *,
    checkpoint: str | Path | None = None,
    ep_implementation: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    attn_implementation: "Implementation" = None,
    experts_implementation: "Implementation" = None,
    **sizes: int,
) -> "nn.Module":
    """The model of a folder, sharded, with this rank's shards of its weights.

    `dtype`, `attn_implementation` and `experts_implementation` are those of `from_pretrained` of transformers 5.24.0:
    without a `dtype`, and with `auto`, the config's, or the checkpoint's where that names none; an implementation may
    be a mapping from names of sub-configs. What `planc apply … -- script` was given holds where a call gives nothing.

    `plan` is a plan as for `check`, a program or a program's file; without it and without sizes, the program that
    `planc apply … -- script` compiled. Raises as `compile` and `apply`; in a run of several processes a RunError
    for a plan that can't be compiled, on every rank.
    """
    from planc.program.program import Program
    from planc.runtime.apply import PROGRAM_VARIABLE
    from planc.runtime.pretrained import from_pretrained as load

    program: Program | str | Path | None = None
    chosen = _chosen(dtype, attn_implementation, experts_implementation)
    if isinstance(plan, Program) or (isinstance(plan, str | Path) and is_program_file(plan)):
        program = plan
    elif plan is not None or sizes or PROGRAM_VARIABLE not in os.environ:
        program = _compiled_on_a_rank(model, plan, ep_implementation, sizes, chosen)
    return load(model, program, checkpoint, chosen)


def _chosen(dtype: object, attention: "Implementation", experts: "Implementation") -> dict[str, Any]:
    return {"dtype": dtype, "attn_implementation": attention, "experts_implementation": experts}


def _compiled_on_a_rank(
    model: str | Path,
    plan: PlanLike,
    ep_implementation: str | None,
    sizes: Mapping[str, int],
    chosen: Mapping[str, Any],
) -> "Program":
    """As `compile`; in a run of several processes a plan that one of them can't compile ends all of them."""
    from planc.runtime.apply import choices, session
    from planc.runtime.errors import RunError

    with session() as joined:
        try:
            given = arguments("from_pretrained", model, ep_implementation, sizes)
            settings = Settings(started_world_size(), dtype=choices(chosen).dtype)
            return lowered(analyse(plan, given, settings))
        except PlanError as error:
            if joined is None:
                raise
            raise RunError(str(error)) from error


def started_world_size() -> int | None:
    """The number of processes that a launcher says it started (WORLD_SIZE); None outside of one."""
    started = os.environ.get("WORLD_SIZE", "")
    return int(started) or None if started.isdecimal() and started.isascii() else None


def distributed_config(
    plan: PlanLike = None,
    model: str | Path | None = None,
    *,
    world_size: int | None = None,
    ep_implementation: str | None = None,
    training: bool = True,
    **sizes: int,
) -> "DistributedConfig":
    """The `DistributedConfig` with which transformers' `from_pretrained` does what `plan` says.

    Arguments as for `check`; the plan may name the model. A `tp_plan` without `tp_size` takes what the other sizes
    leave of `world_size`, by default of the launcher's WORLD_SIZE, as transformers does. Raises PlanError, with a
    finding for each rule that transformers can't carry, or with whatever `check` finds wrong; with `training`, also
    where its own runtime can't train the plan (PL415). A plan that transformers refuses to load is PL116; what it gets
    wrong in some training is a warning (PL606).
    """
    from transformers.distributed import DistributedConfig

    world_size = started_world_size() if world_size is None else world_size
    fields = exported(plan, arguments("distributed_config", model, ep_implementation, sizes), world_size, training)
    return DistributedConfig(**fields)


def exported(plan: PlanLike, given: Given, world_size: int | None = None, training: bool = True) -> dict[str, Any]:
    """The fields of `distributed_config`, without transformers."""
    from planc.program.export import export

    analysis = analyse(plan, given, Settings(world_size))
    context = analysis.context
    if context is None or not analysis.report.ok:
        raise PlanError(analysis.report)
    refused = with_findings(analysis.report, _where_they_run_it(context, _THEIR_LOADER))
    if not refused.ok:
        raise PlanError(refused)
    found = export(context.plan, context.resolved, context.manifest)
    theirs = _where_they_run_it(context, _THEIR_RUNTIME) if training else []
    report = with_findings(analysis.report, (*found.findings, *theirs))
    if not report.ok:
        raise PlanError(report)
    for told in theirs:
        warnings.warn(f"{told.code}: {told.message}", stacklevel=3)
    return dict(found.fields)


def _where_they_run_it(context: "CheckContext", codes: Sequence[str]) -> list[Diagnostic]:
    """What holds of a plan where transformers' own runtime runs it, whoever calls that."""
    from planc.check.checker import run

    return run(replace(context, target="trainer"), select=codes)


def save_pretrained(model: "nn.Module", folder: str | Path, max_shard_size: int | str = "50GB") -> None:
    """Save a sharded model as an ordinary checkpoint that transformers loads; every rank calls it.

    What a single process would have saved, byte for byte; files of more than `max_shard_size` (bytes, or as `"5GB"`)
    are split. Raises RunError, the same on every rank; `folder` is then as it was.
    """
    from planc.runtime.checkpoint.saving import save_pretrained as save

    save(model, Path(folder), max_shard_size)


def save_training(model: "nn.Module", optimizer: "Optimizer | None", folder: str | Path, step: int = 0) -> None:
    """Save parameters, optimizer state and step count, to be resumed at any layout; every rank calls it.

    Raises RunError, the same on every rank; `folder` is then as it was.
    """
    from planc.runtime.checkpoint.training import save_training as save

    save(model, optimizer, folder, step)


def load_training(model: "nn.Module", optimizer: "Optimizer | None", folder: str | Path) -> int:
    """Load what `save_training` saved into `model` and `optimizer`, at this run's layout; returns the step count.

    Raises RunError, the same on every rank.
    """
    from planc.runtime.checkpoint.training import load_training as load

    return load(model, optimizer, folder)


def parallelism_config(of: "nn.Module | Program | DistributedConfig | str | Path") -> "ParallelismConfig | None":
    """What accelerate and the Trainer are to know of a sharded model: which ranks share a batch, and to wrap nothing.

    For `Accelerator(parallelism_config=...)` and `TrainingArguments(parallelism_config=...)`. `of` is the model, which
    planc or transformers sharded, its `DistributedConfig`, or the program or its file. None where there is one process.
    Raises RunError for a model that isn't sharded, and for a pipeline.
    """
    from planc.runtime.accelerating import parallelism_config as config

    return config(of)


def prepare_trainer(trainer: "AnyTrainer") -> "AnyTrainer":
    """Let a Trainer with `save_only_model=True` save and resume the training of its sharded model; returns `trainer`.

    Its checkpoints resume at any layout, and in one process. Evaluation counts each row once.
    """
    from planc.runtime.training import prepare_trainer as prepare

    return prepare(trainer)


def is_program_file(path: str | Path) -> bool:
    """Whether `path` holds a program rather than a plan."""
    try:
        content = json.loads(Path(path).read_bytes()) if str(path).endswith(".json") else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"groups", "hash"} <= content.keys()


def arguments(
    function: str, model: str | Path | None, ep_implementation: str | None, sizes: Mapping[str, int]
) -> Given:
    """The arguments of a call as a source text of their own, so that findings can point into them."""
    for name, size in sizes.items():
        if name not in SIZE_NAMES:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name} must be an int, not {type(size).__name__}")
    file, text = f"<planc.{function}>", f"planc.{function}("
    spans: dict[str, Span] = {}
    options = {"ep_implementation": ep_implementation} if ep_implementation is not None else {}
    named = ({"model": str(model)} if model is not None else {}) | dict(sizes) | options
    for number, (name, value) in enumerate(named.items()):
        text += (", " if number else "") + ("" if name == "model" else f"{name}=")
        start = len(text) + 1
        text += json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
        spans[name] = Span(file, 1, start, 1, len(text) + 1)
    return Given(
        model=Spanned(str(model), spans["model"]) if model is not None else None,
        sizes={name: Spanned(size, spans[name]) for name, size in sizes.items()},
        options={name: Spanned(value, spans[name]) for name, value in options.items()},
        sources={file: text + ")"},
    )
