"""What a rank does to prove a case: apply the program, train two steps, and compare with one process."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig
from transformers.distributed.expert_parallel import EPImplementationInterface
from transformers.distributed.pipeline_parallel import PipelineIdentityLayer, apply_pipeline_parallelism
from transformers.distributed.tensor_parallel import apply_tensor_parallelism
from transformers.distributed.utils import TransformersDeviceMesh

from planc.layouts.layout import Layout
from planc.program.program import Program
from planc.runtime.interpreter import apply_operations
from planc.runtime.mesh import Meshes, build_meshes
from tests.proof.cases import AXES, Case
from tests.proof.models import batches, build, in_bfloat16
from tests.proof.one_process import Reference, optimizer, reference, step


@dataclass
class Finding:
    """How far a rank is off what was expected, as relative errors by what was compared.

    `shards` names parameters that transformers shards otherwise, `rough` is the error of logits in a lower precision.
    """

    errors: dict[str, float] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    failure: str | None = None
    rough: float = 0.0

    @property
    def worst(self) -> float:
        return max(self.errors.values(), default=0.0)


def prove(cases: Sequence[tuple[Case, Program]], theirs: bool = False) -> dict[str, Finding]:
    """Each case on this rank, against one process. With `theirs` transformers' own application is trained instead."""
    meshes = KnownMeshes()
    references: dict[Any, Reference] = {}

    def against_one_process(case: Case, program: Program) -> Finding:
        data = batches(case.layout.dp_size, case.length)
        key = (case.model, case.config, case.layout.dp_size, case.length)
        if key not in references:
            references[key] = reference(build(case.model, **dict(case.config)), data)
        model, other = applied(case, program, meshes.of(case.layout))
        finding = Finding(shards=differing_shards(model, other))
        train(other if theirs else model, case, meshes.of(case.layout), data, references[key], finding)
        return finding

    return {str(case): told(against_one_process, case, program) for case, program in cases}


def same_as_theirs(cases: Sequence[tuple[Case, Program]]) -> dict[str, Finding]:
    """Two steps of planc's application and of transformers' own: for dtypes that one process doesn't compute in."""
    meshes = KnownMeshes()

    def against_transformers(case: Case, program: Program) -> Finding:
        mesh = meshes.of(case.layout)
        data = batches(case.layout.dp_size, case.length)
        model, other = applied(case, program, mesh)
        finding = Finding(shards=differing_shards(model, other))
        expected = alone(other, mesh, case, data)
        train(model, case, mesh, data, expected, finding)
        finding.rough = error(
            expected.logits[own_batch(case, mesh)], one_process_logits(case, data[own_batch(case, mesh)])
        )
        return finding

    return {str(case): told(against_transformers, case, program) for case, program in cases}


def generates(cases: Sequence[tuple[Case, Program]], count: int = 5) -> dict[str, bool]:
    """Whether greedy generation, token by token with a cache, chooses what one process chooses."""
    meshes = KnownMeshes()
    found = {}
    for case, program in cases:
        mesh = meshes.of(case.layout)
        ids = batches(case.layout.dp_size, case.length)[own_batch(case, mesh)]
        options = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None}
        with torch.no_grad():
            expected = fresh(case).generate(ids, **options)
            model: Any = apply_operations(fresh(case), program.operations, mesh)
            found[str(case)] = torch.equal(model.generate(ids, **options), expected)
    return found


def told(prove_one: Callable[[Case, Program], Finding], case: Case, program: Program) -> Finding:
    """The finding, or the failure. A failure on a part of the ranks only leaves the others in a collective."""
    if "PLANC_TEST_PROGRESS" in os.environ:
        sys.stderr.write(f"{case}\n")
    try:
        return prove_one(case, program)
    except Exception:
        return Finding(failure=traceback.format_exc())


class KnownMeshes:
    """Meshes by sizes: each one makes process groups."""

    def __init__(self) -> None:
        self._known: dict[Layout, Meshes] = {}

    def of(self, layout: Layout) -> Meshes:
        sizes = replace(layout, ep_implementation="auto")
        if sizes not in self._known:
            self._known[sizes] = build_meshes(sizes)
        return self._known[sizes]


def applied(case: Case, program: Program, meshes: Meshes) -> tuple[Any, Any]:
    """The model as planc shards it, and as transformers does."""
    model, other = fresh(case), fresh(case)
    apply_operations(model, program.operations, meshes)
    transformers_applies(other, case, meshes)
    return model, other


def alone(model: Any, meshes: Meshes, case: Case, data: Sequence[Tensor]) -> Reference:
    """What a sharded model computes on this rank's batch, as a reference for another one."""
    own = own_batch(case, meshes)
    steps = optimizer(model)
    logits, gradients = step(model, [data[own]])
    first = {name: gathered(gradient).clone() for name, gradient in gradients.items()}
    steps.step()
    second, _ = step(model, [data[own]])
    steps.step()
    parameters = {name: gathered(parameter).clone() for name, parameter in model.named_parameters()}
    return Reference(logits * len(data), first, second * len(data), parameters)


def one_process_logits(case: Case, ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = build(case.model, **dict(case.config))(input_ids=ids, use_cache=False).logits
    return logits


def own_batch(case: Case, meshes: Meshes) -> int:
    return meshes.rank("dp_replicate") * case.layout.fsdp_size + meshes.rank("fsdp")


def fresh(case: Case) -> Any:
    model = build(case.model, **dict(case.config))
    if case.experts != "eager":
        model.set_experts_implementation(case.experts)
    else:
        model.config._experts_implementation = "eager"
    return in_bfloat16(model) if case.bfloat16 else model


def transformers_applies(model: Any, case: Case, meshes: Meshes) -> None:
    """transformers' own application of the model's plan, as `from_pretrained` does it: untied, then tied again."""
    sizes = {f"{axis}_size": case.layout.size(axis) for axis in AXES}
    known = case.layout.ep_implementation in EPImplementationInterface()
    dispatch = case.layout.ep_implementation if known else "all_to_all"
    options = {"ep_implementation": dispatch, "tp_plan": case.tp_plan, **dict(case.options)}
    if not torch.accelerator.is_available():
        options.pop("fsdp_cpu_offload", None)  # transformers 5.24.0 pins the parameters, which needs an accelerator
    config: Any = DistributedConfig(**sizes, **options)
    for tied in model.all_tied_weights_keys:
        owner, _, name = tied.rpartition(".")
        module = model.get_submodule(owner)
        module._parameters[name] = nn.Parameter(module._parameters[name].detach().clone())
    if case.layout.pp_size > 1 and case.layout.tp_size > 1:
        stages_then_tensors(model, config, meshes)
    else:
        type(model).maybe_distribute_model(model, config, TransformersDeviceMesh(meshes.dense, meshes.expert))
    model.tie_weights(recompute_mapping=False)


def stages_then_tensors(model: Any, config: Any, meshes: Meshes) -> None:
    """What `maybe_distribute_model` of transformers 5.24.0 is meant to do with stages and tensor parallelism.

    It resolves the TP plan before it splits the stages, and fails on every rank with a KeyError, for the first rule
    whose module another stage keeps. Here those rules are left out.
    """
    plan, _, _ = model._resolve_parallel_plans(config)
    apply_pipeline_parallelism(model, meshes.of("pp"))
    kept = (name for name, module in model.named_modules() if not isinstance(module, PipelineIdentityLayer))
    names = {*kept, *(name for name, _ in model.named_parameters())}
    apply_tensor_parallelism(model, meshes.of("tp"), {name: style for name, style in plan.items() if name in names})


def differing_shards(model: nn.Module, other: nn.Module) -> list[str]:
    """Parameters whose local tensor, mesh or placements aren't those that transformers' own application gives."""
    ours = dict(model.named_parameters(remove_duplicate=False))
    theirs = dict(other.named_parameters(remove_duplicate=False))
    missing = sorted(ours.keys() ^ theirs.keys())
    return [*missing, *(n for n in ours.keys() & theirs.keys() if difference(ours[n], theirs[n]))]


def difference(found: Any, expected: Any) -> bool:
    if isinstance(found, DTensor) != isinstance(expected, DTensor):
        return True
    if not isinstance(found, DTensor):
        return not torch.equal(found, expected)
    same = found.placements == expected.placements and found.device_mesh == expected.device_mesh
    return not (same and found.shape == expected.shape and torch.equal(found._local_tensor, expected._local_tensor))


def train(
    model: Any, case: Case, meshes: Meshes, data: Sequence[Tensor], expected: Reference, finding: Finding
) -> None:
    """Two steps on this rank's batch."""
    own = own_batch(case, meshes)
    batch = [data[own]]
    # Before any forward: one without gradients leaves the modules that keep their full weight with another parameter.
    steps = optimizer(model)
    with torch.no_grad():
        inference = model(input_ids=data[own], use_cache=False).logits
    finding.errors["logits without gradients"] = error(inference, expected.logits[own])
    logits, gradients = step(model, batch)
    finding.errors["logits"] = error(logits[0], expected.logits[own])
    compare("gradient of", gradients, expected.gradients, finding)
    steps.step()
    logits, _ = step(model, batch)
    finding.errors["logits of the second step"] = error(logits[0], expected.second_logits[own])
    steps.step()
    compare("parameter", dict(model.named_parameters()), expected.parameters, finding)


def compare(what: str, found: dict[str, Tensor], expected: dict[str, Tensor], finding: Finding) -> None:
    for name, whole in expected.items():
        if name not in found:
            finding.errors[f"{what} {name} is missing"] = float(whole.abs().max())
        else:
            finding.errors[f"{what} {name}"] = error(gathered(found[name]), whole)
    for name in found.keys() - expected.keys():
        finding.errors[f"{what} {name} is there"] = float(gathered(found[name]).abs().max())


def gathered(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach()


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected value; NaN counts as infinitely far off."""
    if found.shape != expected.shape:
        return float("inf")
    if not found.numel():
        return 0.0
    off = float((found - expected).abs().max() / (expected.abs().max() + 1e-12))
    return off if off == off else float("inf")


def worst(findings: Iterable[Finding]) -> tuple[float, str]:
    """The largest error and what it is of."""
    return max(((value, name) for f in findings for name, value in f.errors.items()), default=(0.0, ""))
