"""The copy run whole, and how much of a difference rounding alone makes."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from planc.verify.copying.inputs import Batch
from planc.verify.observing import Observation, Steps, observe

ROUNDOFF = torch.finfo(torch.float64).eps / 2
_NOISE = 64 * ROUNDOFF
"""A relative change of every weight, as large as what sums of some dozen terms in another order make."""
_MARGIN = 32
"""Between the largest change that such noise makes and the tolerance."""
_NOISE_RUNS = 2
PERTURBATION = 1e-6
_MOST_AMPLIFICATION = 1e4
"""A copy whose outputs change by more than this times a tiny perturbation of its weights proves nothing."""
_LEAST_VISIBLE = 1e3
"""A tensor whose largest element is not so many times its tolerance can't be told from rounding."""
_RELATIVE_STEP = 0.02
PARTS = ("inference", "training", "gradients", "stepped")


@dataclass(frozen=True, slots=True)
class Reference:
    """What the whole copy gives on all `batches`, and the tolerance of each tensor of each part.

    `steps` are what `observation` took. `amplification` is the largest relative change of an output over the relative
    perturbation of the weights that made it. `unseen` are parameters whose gradient can't be told from rounding:
    a wrong rule on them would go unnoticed.
    """

    batches: Sequence[Batch]
    steps: Steps
    observation: Observation
    tolerances: Mapping[str, Mapping[str, float]]
    amplification: float
    unseen: tuple[str, ...]

    @property
    def ill_conditioned(self) -> bool:
        return not self.amplification < _MOST_AMPLIFICATION


def reference(model: nn.Module, batches: Sequence[Batch], steps: int) -> Reference:
    """Run copies of `model` on `batches`: as it is, with noise as small as rounding, and slightly perturbed.

    The learning rate of the SGD steps moves the parameters by some two per cent.
    """
    first = _observed(model, batches, Steps(), 0.0, 0)
    taken = Steps(steps, _rate(model, first)) if steps else Steps()
    exact = _observed(model, batches, taken, 0.0, 0) if steps else first
    noisy = [_observed(model, batches, taken, _NOISE, seed) for seed in range(1, 1 + _NOISE_RUNS)]
    perturbed = _observed(model, batches, Steps(), PERTURBATION, 99)
    tolerances = {part: _tolerances(exact, noisy, part) for part in PARTS}
    return Reference(
        batches, taken, exact, tolerances, _amplification(exact, perturbed), _unseen(exact, tolerances["gradients"])
    )


def _observed(model: nn.Module, batches: Sequence[Batch], steps: Steps, noise: float, seed: int) -> Observation:
    return observe(noisy_copy(model, noise, seed), batches, steps, lambda _: None)


def noisy_copy(model: nn.Module, noise: float, seed: int) -> nn.Module:
    """A copy of `model` with each weight changed by `noise` of its value, times a normal random number."""
    own = copy.deepcopy(model)
    if noise:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in own.parameters():
                change = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.mul_(1 + noise * change)
    return own


def _rate(model: nn.Module, observed: Observation) -> float:
    weights = math.sqrt(sum(float(p.detach().square().sum()) for p in model.parameters()))
    gradient = math.sqrt(sum(float(g.square().sum()) for g in observed.gradients.values()))
    return _RELATIVE_STEP * weights / gradient if gradient > 0 and math.isfinite(gradient) else 0.0


def _tolerances(exact: Observation, noisy: Sequence[Observation], part: str) -> dict[str, float]:
    expected = tensors(exact, part)
    changes = [{name: largest(other - expected[name]) for name, other in tensors(run, part).items()} for run in noisy]
    return {
        name: _MARGIN * (max(change[name] for change in changes) + ROUNDOFF * largest(tensor))
        for name, tensor in expected.items()
    }


def tensors(observation: Observation, part: str) -> Mapping[str, Tensor]:
    """The tensors of one of `PARTS`, or the weights."""
    assert part in {field.name for field in fields(Observation)}
    found: Mapping[str, Tensor] = getattr(observation, part)
    return found


def largest(tensor: Tensor) -> float:
    """The largest absolute value, infinite where any isn't a number."""
    if tensor.numel() == 0:
        return 0.0
    value = float(tensor.abs().max())
    return value if math.isfinite(value) else math.inf


def _amplification(exact: Observation, perturbed: Observation) -> float:
    found = 0.0
    for part in ("inference", "training"):
        for name, tensor in tensors(exact, part).items():
            change = largest(tensors(perturbed, part)[name] - tensor)
            found = max(found, change / (PERTURBATION * largest(tensor) or math.inf))
    return found if math.isfinite(found) else math.inf


def _unseen(exact: Observation, tolerances: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(
        name for name, gradient in exact.gradients.items() if not largest(gradient) > _LEAST_VISIBLE * tolerances[name]
    )
