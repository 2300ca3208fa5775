"""One watched forward of a model, on whatever device it lives on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from planc.model.building.tracing_layers import kinds, layer_lists, shortened
from planc.model.building.tracing_recorder import Recorder
from planc.model.dataflow import Flow, LayerKind

# Sizes of the watched input. They may be any; two that are unequal and small.
BATCH, SEQUENCE = 2, 6


class UnwatchedError(Exception):
    """What a model raised when it was called with token ids alone: the error's type and first line."""


def watch(model: nn.Module) -> Flow:
    """Run `model` once and record it. Raises UnwatchedError when it can't be called with token ids alone.

    The model is left as it was. Layers that are alike run once, if the model can run without them.
    """
    for whole in (False, True):
        errors = []
        for call in _CALLS:
            try:
                return _attempt(model, call, whole)
            except Exception as error:  # any model may fail in any way when called so; that is an answer
                errors.append(error)
    # A model that takes other arguments says so by a TypeError, and more by what it does with those it takes.
    said = next((error for error in errors if not isinstance(error, TypeError)), errors[0])
    lines = str(said).strip().splitlines() or [""]
    raise UnwatchedError(f"{type(said).__name__}: {lines[0][:200]}")


def _attempt(model: nn.Module, call: Callable[[nn.Module, torch.Tensor], Any], whole: bool) -> Flow:
    recorder = Recorder(model)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    ids = torch.zeros((BATCH, SEQUENCE), dtype=torch.long, device=device)
    with ExitStack() as stack:
        if whole:
            found = [kind for name, layers in layer_lists(model).items() for kind in kinds(name, layers)]
        else:
            found = stack.enter_context(shortened(model))
        stack.enter_context(_experts_in_one_batch(model))
        stack.enter_context(_hooked(model, recorder, found))
        stack.enter_context(torch.enable_grad())
        was_training = model.training
        model.eval()
        try:
            with recorder:
                recorder.declare(ids, "input:input_ids")
                output = call(model, ids)
        finally:
            model.train(was_training)
    return recorder.flow(output, found)


def _causal(model: nn.Module, ids: torch.Tensor) -> Any:
    return model(input_ids=ids, use_cache=False)


def _encoder_decoder(model: nn.Module, ids: torch.Tensor) -> Any:
    return model(input_ids=ids, decoder_input_ids=ids, use_cache=False)


def _ids_by_name(model: nn.Module, ids: torch.Tensor) -> Any:
    return model(input_ids=ids)


def _ids(model: nn.Module, ids: torch.Tensor) -> Any:
    return model(ids)


_CALLS = (_causal, _encoder_decoder, _ids_by_name, _ids)


@contextmanager
def _experts_in_one_batch(model: nn.Module) -> Iterator[None]:
    """Experts without a loop over those that got tokens: transformers' `batched_mm`, which needs no data."""
    all_configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = {id(config): config for config in all_configs if hasattr(config, "_experts_implementation")}
    before = {key: config._experts_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._experts_implementation = "batched_mm"
        yield
    finally:
        for key, config in configs.items():
            config._experts_implementation = before[key]


@contextmanager
def _hooked(model: nn.Module, recorder: Recorder, found: list[LayerKind]) -> Iterator[None]:
    """Every module tells the recorder when it starts and ends, and passes its tensors on under new ids."""
    repeated = {name for kind in found for name in kind.alike if name != kind.module}
    handles = []
    for name, module in model.named_modules():
        before, after = _hooks(name, recorder, name in repeated)
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=False))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooks(name: str, recorder: Recorder, repeated: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if repeated or recorder.suspended:
            recorder.suspended += 1
            return None
        recorder.enter(name)
        with torch._C.DisableTorchFunction():
            inner = _aliases((args, kwargs))
        recorder.record("enter", args, kwargs, inner)
        return inner

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if recorder.suspended:
            recorder.suspended -= 1
            if not recorder.suspended:
                recorder.enter(name)
                recorder.record("repeat", args, kwargs, output)
                recorder.leave()
            return None
        inner = _leaves(output)
        with torch._C.DisableTorchFunction():
            outer = _aliases(output)
        recorder.record("leave", inner, {}, outer)
        recorder.leave()
        return outer

    return before, after


def _leaves(output: Any) -> tuple[Any, ...]:
    """The parts of a module's output: those of a tuple or of transformers' `ModelOutput`, or the one there is."""
    if isinstance(output, dict):
        return tuple(output.values())
    return output if isinstance(output, tuple) else (output,)


def _aliases(item: Any) -> Any:
    """`item` with every tensor in it replaced by a new object for the same data."""
    if isinstance(item, torch.Tensor):
        return item.view_as(item)
    if type(item) in (tuple, list):
        return type(item)(_aliases(part) for part in item)
    if type(item) is dict:
        return {key: _aliases(part) for key, part in item.items()}
    if isinstance(item, dict):  # ModelOutput
        for key, part in list(item.items()):
            item[key] = _aliases(part)
    return item
