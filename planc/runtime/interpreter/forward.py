"""What surrounds a module's forward: input changes, local parameters, wrappers, output changes, late biases."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planc.runtime.errors import ApplicationError

Forward = Callable[..., Any]
TensorChange = Callable[[Tensor], Tensor]


@dataclass
class Surroundings:
    """Everything that the program puts around one module; families of operations add to it, `install` applies it.

    `inputs` are changes of positional input `index`, in program order. `wrappers` go around the module's own forward,
    the first one innermost, and see local parameters where `local` is set. `before` runs at every call.
    """

    name: str
    module: nn.Module
    inputs: list[tuple[int, TensorChange]] = field(default_factory=list)
    outputs: list[TensorChange] = field(default_factory=list)
    wrappers: list[Callable[[Forward], Forward]] = field(default_factory=list)
    before: list[Callable[[], None]] = field(default_factory=list)
    local: bool = False
    added_after: list[str] = field(default_factory=list)

    def install(self) -> None:
        """Replace the module's forward; its signature stays, arguments may come by position or by keyword."""
        original: Forward = self.module.forward
        parameters = positional_names(original)
        core = original
        for wrap in self.wrappers:
            core = wrap(core)
        self.module.forward = _surround(self, core, parameters)
        # `inspect.signature` follows `__wrapped__`: generation and the Trainer look at the signature.
        self.module.forward.__wrapped__ = original  # type: ignore[attr-defined]


def positional_names(forward: Forward) -> tuple[str, ...]:
    """The names under which `forward` takes its positional arguments."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in inspect.signature(forward).parameters.values() if p.kind in kinds)


def _surround(around: Surroundings, core: Forward, names: tuple[str, ...]) -> Forward:
    module, inputs, outputs, before = around.module, tuple(around.inputs), tuple(around.outputs), tuple(around.before)
    hidden = tuple(around.added_after)
    local = around.local

    def forward(*args: Any, **kwargs: Any) -> Any:
        for prepare in before:
            prepare()
        for index, change in inputs:
            args, kwargs = _change_input(args, kwargs, index, names, change)
        with local_parameters(module, hidden) if local else nullcontext():
            output = core(*args, **kwargs)
        if outputs and output is not None:
            output = _change_output(output, outputs, around.name)
        for name in hidden:
            bias = module._parameters.get(name)
            if bias is not None:
                output = output + local_tensor(bias)
        return output

    return forward


def _change_input(
    args: tuple[Any, ...], kwargs: dict[str, Any], index: int, names: tuple[str, ...], change: TensorChange
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if index < len(args):
        if isinstance(args[index], Tensor):
            args = (*args[:index], change(args[index]), *args[index + 1 :])
    elif index < len(names) and isinstance(kwargs.get(names[index]), Tensor):
        kwargs = {**kwargs, names[index]: change(kwargs[names[index]])}
    return args, kwargs


def _change_output(output: Any, changes: tuple[TensorChange, ...], name: str) -> Any:
    if not isinstance(output, Tensor):
        raise ApplicationError(
            f"the program changes the output of `{name}`, which is a {type(output).__name__} and not one tensor"
        )
    for change in changes:
        output = change(output)
    return output


def local_tensor(parameter: Tensor) -> Tensor:
    """This rank's shard of a parameter, connected to its gradient; a plain tensor is its own."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


@contextmanager
def local_parameters(module: nn.Module, hidden: tuple[str, ...] = ()) -> Iterator[None]:
    """Within, `module` holds the local shards of its own parameters, and nothing under the names in `hidden`.

    A parameter that the forward replaced by another one stays replaced.
    """
    held: dict[str, Any] = module._parameters
    originals = {name: p for name, p in held.items() if name in hidden or isinstance(p, DTensor)}
    stand_ins = {name: None if name in hidden else p.to_local() for name, p in originals.items()}
    held.update(stand_ins)
    try:
        yield
    finally:
        for name, original in originals.items():
            if held[name] is stand_ins[name]:
                held[name] = original


def grad_is_wanted(parameter: Tensor) -> bool:
    return torch.is_grad_enabled() and parameter.requires_grad
