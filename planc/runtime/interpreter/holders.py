"""Where each parameter stands in a model: tied ones stand in several places and must stay one object."""

from collections import defaultdict
from collections.abc import Iterator

from torch import Tensor, nn

# Marks that transformers 5.24.0 leaves on parameters; a replacement inherits them.
MARKS = ("_is_hf_initialized",)


class Holders:
    """Every place of every parameter of a model, to replace one in all its places at once."""

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
        self._names: dict[int, list[str]] = defaultdict(list)
        self._parameters: dict[int, nn.Parameter] = {}
        for module_name, module in model.named_modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self._parameters[id(parameter)] = parameter
                    self._places[id(parameter)].append((module, name))
                    self._names[id(parameter)].append(f"{module_name}.{name}" if module_name else name)

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], nn.Parameter]]:
        """Each parameter once, with all its names."""
        return iter([(tuple(self._names[key]), parameter) for key, parameter in self._parameters.items()])

    def replace(self, old: Tensor, new: nn.Parameter) -> None:
        """Put `new` wherever `old` stands."""
        for mark in MARKS:
            if hasattr(old, mark):
                setattr(new, mark, getattr(old, mark))
        places = self._places.pop(id(old))
        for module, name in places:
            module._parameters[name] = new
        self._places[id(new)] = places
        self._names[id(new)] = self._names.pop(id(old))
        del self._parameters[id(old)]
        self._parameters[id(new)] = new
