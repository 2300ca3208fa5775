"""Which parameters a copy can tell right from wrong."""

import copy
from collections.abc import Iterator

import torch
from torch import nn

from planc.resolve.resolved import ResolvedPlan
from planc.verify.exact import Exact
from planc.verify.observing import outputs
from planc.verify.reference import Reference, largest


def visibility(whole: Reference) -> float:
    """The smallest ratio of a gradient's largest element to its tolerance, over all parameters that are seen."""
    tolerances = whole.tolerances["gradients"]
    gradients = whole.observation.gradients.items()
    return min((largest(g) / tolerances[n] for n, g in gradients if n not in whole.unseen), default=0.0)


def untold_parameters(model: nn.Module, whole: Reference, resolved: ResolvedPlan) -> tuple[str, ...]:
    """Parameters about which agreement says nothing.

    Those whose gradient is there and drowns in rounding, and those that a rule shards while no output depends on them.
    A parameter without any gradient is told by the outputs, if they depend on it: selections of experts or of keys
    pass none, and change with the weights that score them.
    """
    ruled = {target for plan in (resolved.tp, resolved.ep) for target, a in plan.items() if a.is_parameter}
    silent = [name for name in whole.unseen if largest(whole.observation.gradients[name]) == 0.0]
    faint = [name for name in whole.unseen if name not in silent]
    return (*faint, *_blind(model, whole, [name for name in silent if name in ruled]))


def _blind(model: nn.Module, whole: Reference, names: list[str]) -> Iterator[str]:
    """Those of `names` that no output of the first batch depends on."""
    for name in names:
        own = copy.deepcopy(model)
        parameter = own.get_parameter(name)
        generator = torch.Generator().manual_seed(7)
        change = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad(), Exact():
            parameter.add_(change * max(largest(parameter), 1.0))
            found = outputs(own, whole.batches[0])
        moved = (
            largest(tensor - whole.observation.inference[f"0.{key}"]) > whole.tolerances["inference"][f"0.{key}"]
            for key, tensor in found.items()
        )
        if not any(moved):
            yield name
