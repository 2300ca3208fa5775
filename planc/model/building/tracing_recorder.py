"""Watching a forward: every torch function that runs, with the arguments as the model gave them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from planc.model.building.tracing_answers import answer
from planc.model.building.tracing_numbers import TracedInt, TracedShape, recorded
from planc.model.dataflow import NUMBER, OTHER, SLICE, VALUE, Argument, Flow, LayerKind, Operation

# Functions that tell of a tensor without computing on it.
_SILENT = frozenset({
    "dim", "ndimension", "is_floating_point", "is_complex", "get_device", "stride", "storage_offset", "data_ptr",
    "element_size", "is_contiguous", "__hash__", "__repr__", "__str__", "__format__", "__len__", "requires_grad_",
    "register_hook", "is_same_size", "_is_view", "untyped_storage", "storage", "is_inference", "result_type",
    "can_cast", "promote_types", "is_tensor", "is_nonzero_", "is_grad_enabled", "set_grad_enabled",
    "_has_compatible_shallow_copy_type", "has_names", "nelement", "__contains__", "_assert", "get_default_dtype",
})  # fmt: skip


class Recorder(TorchFunctionMode):
    """Records while it is the active mode. Values are known by the identity of their tensors, which it keeps alive."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.modules: list[str] = [""]
        self.shapes: list[tuple[int, ...]] = []
        self.differentiable: list[bool] = []
        self.sources: dict[int, str] = {}
        self.operations: list[Operation] = []
        self.suspended = 0
        self._stack: list[int] = [0]
        self._ids: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []
        self._names: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._names.setdefault(id(parameter), []).append(f"parameter:{name}")
        for name, buffer in model.named_buffers(remove_duplicate=False):
            self._names.setdefault(id(buffer), []).append(f"buffer:{name}")
        self._named_ids: dict[str, int] = {}
        # Slices by the identity of their tensor: what they are a slice of, and which.
        self._slices: dict[int, tuple[torch.Tensor, Any]] = {}
        # Outputs of modules by the memory they lie in, which lives as long as they do.
        self._memory: dict[int, list[int]] = {}
        # Comparisons for equality by the identity of their result.
        self._equalities: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if self.suspended:
            return answer(name, func, args, kwargs)
        if name in ("shape", "size", "numel"):
            return self._sizes(name, func, args, kwargs)
        if name == "__bool__" and args[0].is_meta and id(args[0]) in self._equalities:
            # Where data isn't known, to be equal is the exception: the id that stands for no expert, a padding token.
            return False
        result = answer(name, func, args, kwargs)
        if name not in _SILENT and any(isinstance(item, torch.Tensor) for item in _flat(result)):
            self._computed(name, args, kwargs, result)
        elif name == "__setitem__":
            self.record("setitem", args, {"in_place": self._handed_on(args[0])}, args[0])
        return result

    def _computed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        plain = name.strip("_") if name.startswith("__") else name.removesuffix("_")
        # `relu_`, or `relu(inplace=True)`; others, like `contiguous`, may give back what they got.
        says_so = (plain != name and not name.startswith("__")) or kwargs.get("inplace") is True
        in_place = bool(args) and result is args[0] and says_so
        self.record(plain, args, {**kwargs, "in_place": self._handed_on(result)} if in_place else kwargs, result)
        if plain == "eq":
            self._equalities.add(id(result))
        elif plain == "getitem":
            self._slices[id(result)] = (args[0], args[1])
        elif in_place and id(result) in self._slices:
            # Writing into a slice writes into what it was sliced from.
            whole, index = self._slices[id(result)]
            self.record("setitem", (whole, index, result), {}, whole)

    def record(self, name: str, args: Iterable[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Append an operation; tensors in `result` get new ids, also where they existed before (in-place functions)."""
        arguments = tuple(self._argument(item) for item in args)
        keywords = {key: self._argument(item) for key, item in kwargs.items() if item is not None}
        outputs = tuple(self._new(item) for item in _flat(result) if isinstance(item, torch.Tensor))
        self.operations.append(Operation.of(name, self._stack[-1], outputs, arguments, keywords))
        if name == "leave":
            for item in _flat(result):
                if isinstance(item, torch.Tensor):
                    self._memory.setdefault(_memory(item), []).append(self.value(item))

    def _handed_on(self, tensor: torch.Tensor) -> list[int]:
        """The ids of the modules' outputs that lie in the memory of `tensor`."""
        return self._memory.get(_memory(tensor), [])

    def enter(self, module: str) -> None:
        """From now on operations belong to `module`, until `leave`."""
        if module not in self.modules:
            self.modules.append(module)
        self._stack.append(self.modules.index(module))

    def leave(self) -> None:
        """Back to the module before."""
        self._stack.pop()

    def declare(self, tensor: torch.Tensor, source: str) -> None:
        """A value that comes from outside, such as an input of the model."""
        self.sources[self._new(tensor)] = source

    def flow(self, outputs: Any, kinds: Iterable[LayerKind]) -> Flow:
        """What was recorded."""
        return Flow(
            modules=tuple(self.modules),
            shapes=tuple(self.shapes),
            differentiable=tuple(self.differentiable),
            sources=self.sources,
            operations=tuple(self.operations),
            outputs=tuple(self.value(item) for item in _flat(outputs) if isinstance(item, torch.Tensor)),
            kinds=tuple(kinds),
        )

    def value(self, tensor: torch.Tensor) -> int:
        """The id of a tensor; one that no watched function made gets a source."""
        names = self._names.get(id(tensor))
        if names is not None:
            return self._named(tensor, self._nearest(names))
        if id(tensor) not in self._ids:
            # What needs no gradient existed before, or is a constant; the rest escaped the recorder.
            self.declare(tensor, "unseen" if tensor.requires_grad else "constant")
        return self._ids[id(tensor)]

    def _nearest(self, names: list[str]) -> str:
        here = self.modules[self._stack[-1]]
        return next((name for name in names if name.rpartition(".")[0].endswith(f":{here}")), names[0])

    def _named(self, tensor: torch.Tensor, source: str) -> int:
        if source not in self._named_ids:
            self._named_ids[source] = self._new(tensor)
            del self._ids[id(tensor)]
            self.sources[self._named_ids[source]] = source
        return self._named_ids[source]

    def _new(self, tensor: torch.Tensor) -> int:
        number = len(self.shapes)
        with torch._C.DisableTorchFunction():
            self.shapes.append(tuple(int(size) for size in tensor.shape))
            self.differentiable.append(tensor.requires_grad)
        self._ids[id(tensor)] = number
        self._alive.append(tensor)
        return number

    def _sizes(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        tensor = args[0]
        with torch._C.DisableTorchFunction():
            sizes = tuple(tensor.shape)
        value = self.value(tensor)
        shape = TracedShape(TracedInt(size, ["dim", value, dim]) for dim, size in enumerate(sizes))
        if name == "numel":
            return shape.numel()
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return shape if dim is None else shape[int(dim)]

    def _argument(self, item: Any) -> Argument:
        if isinstance(item, torch.Tensor):
            return [VALUE, self.value(item)]
        if item is None or isinstance(item, bool | float | str):
            return item
        if isinstance(item, TracedInt):
            return [NUMBER, recorded(item)]
        if isinstance(item, int):
            return int(item)
        if isinstance(item, slice):
            return [SLICE, *(self._argument(part) for part in (item.start, item.stop, item.step))]
        if isinstance(item, Mapping):
            item = tuple(item.values())
        if isinstance(item, list | tuple):
            return [self._argument(part) for part in item]
        if item is Ellipsis:
            return [OTHER, "..."]
        return [OTHER, str(item)]


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _name(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", str(func))
    return getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name


def _flat(result: Any) -> Iterable[Any]:
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, list | tuple):
        for item in result:
            yield from _flat(item)
    else:
        yield result
