"""What a rank does to prove a case: apply the program, train two steps, and compare with one process."""

import copy
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh

from planc.layouts.layout import Layout
from planc.program.program import Program
from planc.runtime.interpreter import apply_operations
from planc.runtime.mesh import Meshes, build_meshes
from tests.proof.cases import Case
from tests.proof.models import batches, build
from tests.proof.one_process import Reference, optimizer, reference, step


@dataclass
class Finding:
    """How far a rank is off one process, as relative errors by what was compared, and what went wrong otherwise."""

    errors: dict[str, float] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def worst(self) -> float:
        return max(self.errors.values(), default=0.0)


def prove(cases: Sequence[tuple[Case, Program]], theirs: bool = False) -> dict[str, Finding]:
    """Each case on this rank. With `theirs` what is trained is transformers' own application."""
    meshes: dict[Layout, Meshes] = {}
    references: dict[Any, Reference] = {}
    found = {}
    for case, program in cases:
        mesh = _meshes(case.layout, meshes)
        data = batches(case.layout.dp_size, case.length)
        key = (case.model, case.config, case.layout.dp_size, case.length)
        if key not in references:
            references[key] = reference(build(case.model, **dict(case.config)), data)
        if os.environ.get("TRY"):
            print("CASE", case, flush=True, file=sys.stderr)
        try:
            found[str(case)] = one(case, program, mesh, data, references[key], theirs)
        except Exception as error:  # on every rank alike, or the launch runs into its timeout
            import traceback

            found[str(case)] = Finding(failure=f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return found


def _meshes(layout: Layout, known: dict[Layout, Meshes]) -> Meshes:
    sizes = Layout(layout.pp_size, layout.dp_replicate_size, layout.fsdp_size, layout.tp_size, layout.ep_size)
    if sizes not in known:
        known[sizes] = build_meshes(sizes)
    return known[sizes]


def one(
    case: Case, program: Program, meshes: Meshes, data: Sequence[Tensor], expected: Reference, theirs: bool
) -> Finding:
    model, other = fresh(case), fresh(case)
    apply_operations(model, program.operations, meshes)
    transformers_applies(other, case, meshes)
    finding = Finding(shards=differing_shards(model, other))
    train(other if theirs else model, case, meshes, data, expected, finding)
    return finding


def fresh(case: Case) -> Any:
    model = build(case.model, **dict(case.config))
    if case.experts != "eager":
        model.set_experts_implementation(case.experts)
    else:
        model.config._experts_implementation = "eager"
    return model


def transformers_applies(model: Any, case: Case, meshes: Meshes) -> None:
    """transformers' own application of the model's plan, as `from_pretrained` does it: untied, then tied again."""
    axes = ("pp", "dp_replicate", "fsdp", "tp", "ep")
    sizes = {f"{axis}_size": case.layout.size(axis) for axis in axes}  # type: ignore[arg-type]
    config: Any = DistributedConfig(**sizes, ep_implementation=case.layout.ep_implementation, **dict(case.options))
    for tied in model.all_tied_weights_keys:
        owner, _, name = tied.rpartition(".")
        module = model.get_submodule(owner)
        module._parameters[name] = nn.Parameter(module._parameters[name].detach().clone())
    type(model).maybe_distribute_model(model, config, TransformersDeviceMesh(meshes.dense, meshes.expert))
    model.tie_weights()


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
    own = meshes.rank("dp_replicate") * case.layout.fsdp_size + meshes.rank("fsdp")
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


def independent(model: Any) -> Any:
    return copy.deepcopy(model)
