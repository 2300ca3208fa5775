"""Pipeline stages: forward only, as far as transformers takes it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planc.ir.operations import SplitStages
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles


class AnotherStage(nn.Identity):
    """Stands for a module that another stage keeps: returns its first argument."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else next(iter(kwargs.values()))


@dataclass(frozen=True)
class Stage:
    """This rank's stage: its place in the pipeline and the group to talk in."""

    rank: int
    count: int
    group: dist.ProcessGroup

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_last(self) -> bool:
        return self.rank == self.count - 1

    def device_for(self, device: torch.device) -> torch.device:
        """Where a message must lie: gloo only sends from host memory."""
        return torch.device("cpu") if dist.get_backend(self.group) == "gloo" else device

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Hidden states [batch, sequence, hidden] from the stage before."""
        message = torch.empty(shape, dtype=dtype, device=self.device_for(device))
        dist.recv(message, group=self.group, group_src=self.rank - 1)
        return message.to(device)

    def send(self, states: Tensor) -> None:
        message = states.detach().to(self.device_for(states.device)).contiguous()
        dist.send(message, group=self.group, group_dst=self.rank + 1)

    def broadcast_logits(self, logits: Tensor | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The last stage's logits [batch, sequence, vocabulary] on every stage."""
        place = self.device_for(device)
        shape = torch.tensor(logits.shape if logits is not None else (0, 0, 0), dtype=torch.long, device=place)
        dist.broadcast(shape, group=self.group, group_src=self.count - 1)
        if logits is None:
            message = torch.empty(tuple(shape.tolist()), dtype=dtype, device=place)
        else:
            message = logits.detach().to(place).contiguous()
        dist.broadcast(message, group=self.group, group_src=self.count - 1)
        return message.to(device)


@handles(SplitStages)
def split_stages(operation: SplitStages, application: Application) -> None:
    """Keep this rank's layers and replace the model's forward by one that passes hidden states on.

    Same stages and messages as `transformers/distributed/pipeline_parallel.py` 5.24.0, which has no backward either.
    """
    meshes = application.meshes
    stage = Stage(meshes.rank("pp"), meshes.size("pp"), meshes.group("pp"))
    model = application.model
    start, end = operation.ranges[stage.rank]
    for number, _ in enumerate(application.module(operation.layers).children()):
        if not start <= number < end:
            _leave_out(model, f"{operation.layers}.{number}")
    for name in {*operation.first, *operation.last}:
        if not ((stage.is_first and name in operation.first) or (stage.is_last and name in operation.last)):
            _leave_out(model, name)
    if not stage.is_last and any(name in operation.first for name in operation.last):
        # The head of a tied embedding lives on the last stage; here there is nothing to tie.
        model.all_tied_weights_keys = {}  # type: ignore[assignment]
    backbone = application.module(operation.layers.rpartition(".")[0])
    application.after_install.append(lambda: _install(model, backbone, stage))


def _leave_out(model: nn.Module, name: str) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, AnotherStage())


def _install(model: nn.Module, backbone: nn.Module, stage: Stage) -> None:
    whole_forward: Callable[..., Any] = model.forward
    signature = inspect.signature(whole_forward)
    hidden_size: int = model.config.get_text_config().hidden_size  # type: ignore[union-attr,operator]

    @wraps(whole_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given |= given.pop("kwargs", {})
        parameter = next(model.parameters())
        if not stage.is_first:
            shape = _shape_of_states(given, hidden_size)
            given.pop("input_ids", None)
            given["inputs_embeds"] = stage.receive(shape, parameter.dtype, parameter.device)
        if stage.is_last:
            outputs = whole_forward(**given)
            logits = outputs.logits
        else:
            outputs = backbone(**{k: v for k, v in given.items() if k not in {"labels", "logits_to_keep"}})
            stage.send(outputs.last_hidden_state)
            logits = None
        logits = stage.broadcast_logits(logits, parameter.dtype, parameter.device)
        return CausalLMOutputWithPast(logits=logits, cache=outputs.cache)

    model.forward = forward


def _shape_of_states(given: dict[str, Any], hidden_size: int) -> tuple[int, ...]:
    if (embedded := given.get("inputs_embeds")) is not None:
        return tuple(embedded.shape)
    if (ids := given.get("input_ids")) is not None:
        return (*ids.shape[:2], hidden_size)
    raise ApplicationError(
        "a pipeline stage needs `input_ids` or `inputs_embeds`: they tell the shape of what it receives"
    )
