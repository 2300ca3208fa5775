"""Run a model, whole or on a rank, and write down all that can be compared."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from planc.verify.copying.inputs import Batch
from planc.verify.exact import Exact

_CACHES = ("past_key_values", "cache_params", "state")
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Observation:
    """What one rank, or the whole model, gave.

    `weights` are the parameters before anything ran, `inference` and `training` the outputs without and with gradients,
    `gradients` those of the first step, and `stepped` the parameters after the last. Sharded tensors are gathered.
    A part that wasn't asked for is empty.
    """

    weights: Tensors = field(default_factory=dict)
    inference: Tensors = field(default_factory=dict)
    training: Tensors = field(default_factory=dict)
    loss: float = 0.0
    gradients: Tensors = field(default_factory=dict)
    stepped: Tensors = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steps:
    """How many plain-SGD steps to take; none observes gradients alone. `rate` is the learning rate."""

    count: int = 0
    rate: float = 0.0


def observe(model: nn.Module, batches: Sequence[Batch], steps: Steps, phase: Callable[[str], None]) -> Observation:
    """Everything about `model` on `batches`, of which the whole model has several and a rank its own one.

    The gradient is that of the mean of the batches' losses. `phase` is told what comes next.
    """
    with Exact():
        # Before the first forward: afterwards FSDP2 may leave gathered parameters in the place of their shards.
        optimizer = torch.optim.SGD(model.parameters(), lr=steps.rate, foreach=False)
        weights, inference = _without_gradients(model, batches, phase)
        training: dict[str, Tensor] = {}
        loss, gradients = 0.0, {}
        for step in range(max(1, steps.count)):
            optimizer.zero_grad()
            phase("training")
            losses = []
            for number, batch in enumerate(batches):
                found = outputs(model, batch)
                losses.append(objective(found))
                if step == 0:
                    training.update({f"{number}.{key}": output.detach() for key, output in found.items()})
            mean = torch.stack(losses).mean()
            phase("backward")
            mean.backward()  # type: ignore[no-untyped-call]
            if step == 0:
                loss, gradients = float(mean.detach()), dict(_gradients(model))
            if steps.count:
                phase("step")
                optimizer.step()
        stepped = {n: gathered(p) for n, p in model.named_parameters()} if steps.count else {}
    return Observation(weights, inference, training, loss, gradients, stepped)


def infer(model: nn.Module, batches: Sequence[Batch], phase: Callable[[str], None]) -> Observation:
    """What `observe` gives of inference, and of the parameters before it."""
    with Exact():
        return Observation(*_without_gradients(model, batches, phase))


def _without_gradients(
    model: nn.Module, batches: Sequence[Batch], phase: Callable[[str], None]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    phase("gather")
    weights = {name: gathered(parameter) for name, parameter in model.named_parameters()}
    phase("inference")
    with torch.no_grad():
        return weights, {f"{n}.{key}": o for n, b in enumerate(batches) for key, o in outputs(model, b).items()}


def _gradients(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        yield name, gathered(torch.zeros_like(parameter) if gradient is None else gradient)


def gathered(tensor: Tensor) -> Tensor:
    """A copy of the whole tensor, brought together from the ranks where it is sharded."""
    detached = tensor.detach()
    return (detached.full_tensor() if isinstance(detached, DTensor) else detached).clone()


def outputs(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The floating-point tensors that the model returns for a batch, without a cache, by name."""
    extra = {"use_cache": False} if "use_cache" in inspect.signature(type(model).forward).parameters else {}
    output = model(**batch, **extra)
    if isinstance(output, Mapping):
        output = {key: value for key, value in output.items() if key not in _CACHES}
    leaves, _ = pytree.tree_flatten_with_path(output)
    tensors = ((pytree.keystr(path).strip("[]'."), leaf) for path, leaf in leaves if isinstance(leaf, Tensor))
    return {name: tensor for name, tensor in tensors if tensor.is_floating_point()}


def objective(found: Tensors) -> Tensor:
    """A scalar that every feature of every output moves: a fixed random projection and half the mean square.

    Cross-entropy would not do: it doesn't see a constant added to all logits.
    """
    total = torch.zeros((), dtype=torch.float64)
    for number, output in enumerate(found.values()):
        generator = torch.Generator().manual_seed(number)
        direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        total = total + (output * direction).mean() + output.square().mean() / 2
    return total
