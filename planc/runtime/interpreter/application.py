"""Applying a list of operations to a model: a registry from operation to handler, and what handlers share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from torch import nn

from planc.ir.operations import Operation
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.forward import Surroundings
from planc.runtime.interpreter.holders import Holders
from planc.runtime.mesh import Meshes

H = TypeVar("H", bound=Callable[..., None])
HANDLERS: dict[type[Any], Callable[[Any, "Application"], None]] = {}
# Operations that must come after every other one of the model, in this order.
LATE: list[type[Any]] = []


def handles(operation: type[Any], late: bool = False) -> Callable[[H], H]:
    """Decorator: the function `(operation, application)` handles this kind of operation.

    Late ones run after the forwards of the modules were replaced (FSDP2 wraps what is there).
    """

    def register(handler: H) -> H:
        if operation in HANDLERS:
            raise ValueError(f"{operation.__name__} is handled twice")
        HANDLERS[operation] = handler
        if late:
            LATE.append(operation)
        return handler

    return register


@dataclass
class Application:
    """One application of a program to a model.

    `dropped` names modules that this rank's pipeline stage doesn't keep: operations on them are skipped here.
    `after_install` runs once the modules' forwards were replaced.
    """

    model: nn.Module
    meshes: Meshes
    holders: Holders = field(init=False)
    _modules: dict[str, nn.Module] = field(init=False)
    _surroundings: dict[str, Surroundings] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    after_install: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.holders = Holders(self.model)
        self._modules = dict(self.model.named_modules(remove_duplicate=False))

    def module(self, name: str) -> nn.Module:
        """The module of that name. Raises `ApplicationError` when the model has none."""
        try:
            return self._modules[name]
        except KeyError:
            raise ApplicationError(f"the program names the module `{name}`, which this model doesn't have") from None

    def owner(self, parameter: str) -> tuple[nn.Module, str]:
        """The module that holds `parameter`, and the parameter's name in it."""
        module_name, _, name = parameter.rpartition(".")
        module = self.module(module_name)
        if module._parameters.get(name) is None:
            raise ApplicationError(f"the program names the parameter `{parameter}`, which this model doesn't have")
        return module, name

    def around(self, name: str) -> Surroundings:
        """What the program puts around the module `name` so far, to be added to."""
        if name not in self._surroundings:
            self._surroundings[name] = Surroundings(name, self.module(name))
        return self._surroundings[name]

    def run(self, operations: Iterable[Operation]) -> None:
        """Hand each operation to its handler, then replace the forwards."""
        for operation in operations:
            if not self._is_dropped(operation):
                HANDLERS[type(operation)](operation, self)
        self.install()

    def _is_dropped(self, operation: Operation) -> bool:
        if not self.dropped:
            return False
        parts = target(operation).split(".")
        return any(".".join(parts[: end + 1]) in self.dropped for end in range(len(parts)))

    def install(self) -> None:
        """Replace the forwards of all surrounded modules."""
        for surroundings in self._surroundings.values():
            surroundings.install()
        self._surroundings.clear()
        for finish in self.after_install:
            finish()
        self.after_install.clear()


def target(operation: Operation) -> str:
    """The parameter or module that an operation names; empty for those that name several, or the model."""
    for attribute in ("parameter", "module", "target"):
        if (name := getattr(operation, attribute, None)) is not None:
            return str(name)
    return ""


def load_handlers() -> None:
    """Import every file beside this one: each registers the operations that it handles."""
    package = __name__.rpartition(".")[0]
    for found in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{found.name}")


def apply_operations(model: nn.Module, operations: Iterable[Operation], meshes: Meshes) -> nn.Module:
    """Shard `model` in place and install its transforms, in program order; returns `model`.

    The model may be on the meta device. Raises `ApplicationError` before anything is changed when the program names a
    module or parameter that the model doesn't have, or an operation that this runtime doesn't know.
    """
    load_handlers()
    ordered = list(operations)
    application = Application(model, meshes)
    for operation in ordered:
        _refuse_unknown(operation, application)
    early = [o for o in ordered if type(o) not in LATE]
    late = sorted((o for o in ordered if type(o) in LATE), key=lambda o: LATE.index(type(o)))
    try:
        application.run(early)
        application.run(late)
    except Exception as error:
        error.add_note("the model is spoiled: parts of it are sharded already; build or load it again")
        raise
    return model


def _refuse_unknown(operation: Operation, application: Application) -> None:
    if type(operation) not in HANDLERS:
        raise ApplicationError(f"this runtime doesn't know the operation `{operation.op}`")
    if (parameter := getattr(operation, "parameter", None)) is not None:
        application.owner(parameter)
    elif (module := getattr(operation, "module", None)) is not None:
        application.module(module)
