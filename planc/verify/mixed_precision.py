"""Plans with `fsdp_mixed_precision`: what they compute is judged in double precision, how they round at their own.

A tolerance of bfloat16 would hide faults, and one of double precision refutes every plan. So a plan is tried twice:
with the policy off, against tolerances of double precision; and with it on, against what the same precision does to the
whole copy in one process, measured for each tensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from planc.ir.operations import WrapFsdp
from planc.program.program import Program
from planc.verify.copying.inputs import Batch
from planc.verify.observing import Observation, Steps, observe
from planc.verify.reference import Reference, largest, noisy_copy, tensors

_RUNS = 3
# Rounding of every weight that bfloat16 makes; the runs differ by as much noise, so that a route that a router chooses
# by a hair is seen to go both ways.
_NOISE = torch.finfo(torch.bfloat16).eps / 2
_MARGIN = 4
"""Between the largest departure that the precision makes in one process and the tolerance."""
_PARTS = ("inference", "training", "gradients")


def has_mixed_precision(program: Program) -> bool:
    """Whether any FSDP group of `program` computes in bfloat16."""
    return any(isinstance(o, WrapFsdp) and o.mixed_precision for o in program.operations)


def without_mixed_precision(program: Program) -> Program:
    """`program` with every FSDP group in the precision of its parameters."""
    return replace(
        program,
        instructions=tuple(
            replace(instruction, operation=replace(instruction.operation, mixed_precision=False))
            if isinstance(instruction.operation, WrapFsdp)
            else instruction
            for instruction in program.instructions
        ),
    )


def at_bfloat16(model: nn.Module, whole: Reference) -> Reference:
    """`whole` with the tolerances of bfloat16: what it does to each tensor of a copy that runs in one process.

    The optimizer's steps are left out: parameters and updates keep their own precision. Raises whatever the model
    raises in bfloat16.
    """
    runs = [_observed(model, whole.batches, seed) for seed in range(_RUNS)]
    tolerances = {part: _tolerances(whole.observation, runs, part) for part in _PARTS}
    return replace(whole, steps=Steps(), tolerances=tolerances)


def _observed(model: nn.Module, batches: Sequence[Batch], seed: int) -> Observation:
    own = noisy_copy(model, _NOISE if seed else 0.0, seed)
    return observe(own.to(torch.bfloat16), [_cast(batch) for batch in batches], Steps(), lambda _: None)


def _cast(batch: Batch) -> Mapping[str, Tensor]:
    """`batch` as FSDP2's root hands it on: floating-point inputs in the precision of the parameters."""
    return {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in batch.items()}


def _tolerances(exact: Observation, runs: Sequence[Observation], part: str) -> dict[str, float]:
    expected = tensors(exact, part)
    return {
        name: _MARGIN * max(largest(tensors(run, part)[name].to(tensor.dtype) - tensor) for run in runs)
        for name, tensor in expected.items()
    }
