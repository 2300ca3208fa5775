"""The backward pass over a flow: whether every gradient arrives complete, on every rank, once."""

from dataclasses import dataclass, field

from planc.flow.boundaries import Boundary
from planc.flow.forward import Forward, positional, whole_sources
from planc.flow.plan import PlacedModel
from planc.flow.problems import Kind, Problem
from planc.flow.step import is_slice
from planc.flow.types import Fill, Gradient, Origin, PartialSum, Replicated, Sharded, Type
from planc.model.dataflow import Operation, evaluate
from planc.styles.reduction import rope_head_dim

# Operations whose outputs have no gradient of their inputs.
_CUTS = frozenset({"detach", "argmax", "argmin", "one_hot"})
_PASSES_PARTS = frozenset({"enter", "leave", "to", "contiguous", "clone", "float", "dropout"})

# What a sum over the axis makes of a gradient.
_SUMMED = {Gradient.PARTIAL: Gradient.COMPLETE, Gradient.COMPLETE: Gradient.SCALED}

# Gradients of consecutive parts of the last dim: (start, stop, gradient).
Parts = list[tuple[int, int, Gradient]]


@dataclass
class Backward:
    """Gradients by value id, and by the flow's parameter names."""

    gradients: list[Gradient]
    parameters: dict[str, Gradient] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def backward(forward: Forward, model: PlacedModel) -> Backward:
    """Propagate gradients' types from the model's output to its parameters."""
    return _Pass(forward, model).run()


class _Pass:
    def __init__(self, forward: Forward, model: PlacedModel) -> None:
        self.forward, self.flow, self.model = forward, forward.flow, model
        self.gradients = [Gradient.NONE] * len(self.flow.shapes)
        self.parts: dict[int, Parts] = {}
        # Where a partial or mixed gradient was born, by value: the operation's number.
        self.born: dict[int, int] = {}
        self.result = Backward(self.gradients)
        self._told: set[tuple[Kind, int]] = set()

    def run(self) -> Backward:
        for value in self.flow.outputs[:1]:
            self.gradients[value] = Gradient.COMPLETE
        for number in reversed(range(len(self.flow.operations))):
            op = self.flow.operations[number]
            if number in self.forward.skipped or op.name in _CUTS:
                self._opaque(op)
                continue
            self._operation(number, op)
        for value, source in self.flow.sources.items():
            if source.startswith("parameter:"):
                self._parameter(value, source.removeprefix("parameter:"))
        return self.result

    def _opaque(self, op: Operation) -> None:
        """Modules of another axis: what enters them gets a complete gradient; an unknown one where the style is so."""
        if op.name == "enter":
            name = f"{self.model.name(self.flow.modules[op.module])}."
            is_foreign = any(name.startswith(f"{module}.") for module in self.model.foreign)
            gradient = Gradient.UNKNOWN if is_foreign else Gradient.COMPLETE
            for value in op.inputs:
                self._add(value, gradient, -1)

    def _operation(self, number: int, op: Operation) -> None:
        boundary = self.forward.boundaries.get(number)
        for position, output in enumerate(op.outputs):
            keeps_parts = op.name in _PASSES_PARTS and (boundary is None or boundary.type.sums_output_gradient)
            if not keeps_parts:
                self._settle(number, output)
            gradient = self.gradients[output]
            if gradient is Gradient.NONE and output not in self.parts:
                continue
            if op.name in ("enter", "leave"):
                self._boundary(number, op, position, boundary)
            elif op.name in ("getitem", "chunk", "split", "split_with_sizes") and self._sliced(number, op, output):
                continue
            elif output in self.parts and op.inputs:
                self._pass(number, op.inputs[0], output)
            else:
                self._spread(number, op, output, gradient)

    def _settle(self, number: int, value: int) -> None:
        """Join the gradients of a value's parts."""
        birth = self.born.get(value, number)
        for _, _, gradient in self.parts.pop(value, ()):
            self._add(value, gradient, birth)

    def _boundary(self, number: int, op: Operation, position: int, boundary: Boundary | None) -> None:
        outer, inner = op.inputs[position], op.outputs[position]
        gradient = self.gradients[inner]
        if boundary is None:
            self._pass(number, outer, inner)
            return
        if op.name == "enter":
            places = {inside: place for place, (_, inside) in positional(op).items()}
            result = boundary.enter_gradient(gradient, places.get(inner, -1))
            self._add(outer, self._unscaled(number, result, boundary.origin), number)
        elif boundary.type.sums_output_gradient and position == 0:
            self._sum_last_features(number, outer, inner, boundary.origin)
        else:
            self._add(outer, boundary.leave_gradient(gradient), number)

    def _pass(self, number: int, outer: int, inner: int) -> None:
        """The gradient of `inner` is that of `outer`, part by part."""
        birth = self.born.get(inner, number)
        for start, stop, gradient in self.parts.get(inner, ()):
            self._add_part(outer, start, stop, gradient)
            self.born.setdefault(outer, birth)
        self._add(outer, self.gradients[inner], birth)

    def _sum_last_features(self, number: int, outer: int, inner: int, origin: Origin) -> None:
        """MLA: the gradient of the last features is summed, and must be partial before."""
        width = self.flow.shapes[inner][-1]
        summed_from = width - (rope_head_dim(self.model.manifest) or 0)
        for start, stop, gradient in [*self.parts.get(inner, ()), (0, width, self.gradients[inner])]:
            if gradient is Gradient.NONE:
                continue
            if start < summed_from:
                self._add_part(outer, start, min(stop, summed_from), gradient)
            if stop > summed_from:
                summed = _SUMMED.get(gradient, gradient)
                self._add_part(outer, max(start, summed_from), stop, self._unscaled(number, summed, origin))

    def _add_part(self, value: int, start: int, stop: int, gradient: Gradient) -> None:
        self.parts.setdefault(value, []).append((start, stop, gradient))

    def _sliced(self, number: int, op: Operation, output: int) -> bool:
        """Whether `op` takes consecutive features of a whole value's last dim: then its parts are kept apart."""
        if not op.inputs:
            return False
        source = op.inputs[0]
        if not isinstance(self.forward.types[source], Replicated) or not self.flow.differentiable[source]:
            return False
        try:
            bounds = self._bounds(op, output)
        except (TypeError, ValueError, LookupError, ArithmeticError):
            bounds = None  # indices may be anything that a model, or whoever wrote the manifest, thought of
        if bounds is None:
            return False
        gradient = self.gradients[output]
        if gradient is not Gradient.NONE:
            self._add_part(source, *bounds, gradient)
            if gradient is Gradient.PARTIAL:
                self.born.setdefault(source, self.born.get(output, number))
        return True

    def _bounds(self, op: Operation, output: int) -> tuple[int, int] | None:
        if not self.flow.shapes[output]:
            return None
        width, own = self.flow.shapes[op.inputs[0]][-1], self.flow.shapes[output][-1]
        if width == own or len(self.flow.shapes[op.inputs[0]]) != len(self.flow.shapes[output]):
            return None
        if op.name != "getitem":
            before = op.outputs[: op.outputs.index(output)]
            start = sum(self.flow.shapes[value][-1] for value in before)
            return (start, start + own) if sum(self.flow.shapes[value][-1] for value in op.outputs) == width else None
        index = op.arguments[1]
        last = [index] if is_slice(index) else index[-1:] if isinstance(index, list) else []
        if not last or not is_slice(last[0]) or last[0][3] is not None:
            return None
        numbers = [None if n is None else self._global(n) for n in last[0][1:]]
        start, stop, _ = slice(*numbers).indices(width)
        return start, stop

    def _global(self, number: object) -> int:
        return evaluate(number, lambda value, dim: self.flow.shapes[value][dim])

    def _spread(self, number: int, op: Operation, output: int, gradient: Gradient) -> None:
        kind = self.forward.types[output]
        for value in dict.fromkeys(op.inputs):
            if self.flow.differentiable[value]:
                source: Type = kind if value in self.forward.added_after else self.forward.types[value]
                contribution = gradient if output in self.forward.recovered else contribute(source, kind, gradient)
                birth = self.born.get(output, number) if contribution is gradient else number
                self._add(value, contribution, birth)

    def _add(self, value: int, gradient: Gradient, number: int) -> None:
        """One more contribution. What no sum mends is told, and then taken for complete, so that more shows."""
        if gradient is Gradient.PARTIAL:
            self.born.setdefault(value, number)
        after = self.gradients[value].plus(gradient)
        if after is Gradient.MIXED:
            birth = self.born.get(value, number)
            detail = "complete and partial gradients are added, which no sum mends"
            if gradient is Gradient.MIXED:
                detail = "a partial gradient reaches a value that each rank has a part of, and no sum mends it any more"
            self._tell(Kind.MIXED_GRADIENT, birth, value, detail)
            after = Gradient.COMPLETE
        self.gradients[value] = after

    def _unscaled(self, number: int, gradient: Gradient, origin: Origin) -> Gradient:
        """A gradient that was summed without need is told, and then taken for complete."""
        if gradient is not Gradient.SCALED:
            return gradient
        detail = f"the gradient is already complete, and `{origin.style}` sums it over {self.model.ranks.size} ranks"
        self._tell(Kind.SCALED_GRADIENT, number, self.flow.operations[number].inputs[0], detail, (origin,))
        return Gradient.COMPLETE

    def _parameter(self, value: int, name: str) -> None:
        self._settle(-1, value)
        gradient = self.gradients[value]
        owner = self._summing_owner(name)
        if self.model.type(owner).sums_parameter_gradients:
            origin = Origin(self.model.name(owner), getattr(self.model.style(owner), "name", ""))
            if gradient is Gradient.PARTIAL:
                gradient = Gradient.COMPLETE
            elif gradient is Gradient.COMPLETE:
                gradient = Gradient.SCALED
                detail = (
                    f"the gradient is already complete, and `{origin.style}` sums it over {self.model.ranks.size} ranks"
                )
                self._parameter_problem(Kind.SCALED_GRADIENT, name, value, detail, (origin,))
        elif gradient is Gradient.PARTIAL:
            birth = self.born.get(value, -1)
            where = self.model.name(self.flow.modules[self.flow.operations[birth].module]) if birth >= 0 else owner
            detail = (
                f"it is whole on every rank and meets a shard in `{where}`: each rank has its own part of the gradient"
            )
            self._parameter_problem(Kind.PARTIAL_GRADIENT, name, value, detail, self._origins(birth))
        self.result.parameters[name] = gradient

    def _summing_owner(self, name: str) -> str:
        """The module that sums the parameter's gradient: its own, or another with which it is tied."""
        owners = [name.rpartition(".")[0], *(other.rpartition(".")[0] for other in self.model.tied_with(name))]
        return next((owner for owner in owners if self.model.type(owner).sums_parameter_gradients), owners[0])

    def _parameter_problem(self, kind: Kind, name: str, value: int, detail: str, origins: tuple[Origin, ...]) -> None:
        self.result.problems.append(
            Problem(
                kind,
                self.model.name(name.rpartition(".")[0]),
                "backward",
                detail,
                types=(self.forward.types[value],),
                origins=origins,
                parameter=self.model.name(name),
            )
        )

    def _origins(self, number: int) -> tuple[Origin, ...]:
        """The rules behind the shards that an operation reads or makes."""
        if number < 0:
            return ()
        op = self.flow.operations[number]
        kinds = [self.forward.types[value] for value in (*op.inputs, *op.outputs)]
        origins = [kind.origin for kind in kinds if isinstance(kind, Sharded | PartialSum)]
        return tuple(dict.fromkeys(origin for origin in origins if origin is not None))

    def _tell(self, kind: Kind, number: int, value: int, detail: str, origins: tuple[Origin, ...] = ()) -> None:
        if (kind, number) in self._told:
            return
        self._told.add((kind, number))
        op = self.flow.operations[number]
        self.result.problems.append(
            Problem(
                kind,
                self.model.name(self.flow.modules[op.module]),
                op.name,
                detail,
                types=(self.forward.types[value],),
                origins=origins or self._origins(number),
                whole=whole_sources(self.forward, self.model, (value,)) if kind is Kind.MIXED_GRADIENT else (),
            )
        )


def contribute(source: Type, output: Type, gradient: Gradient) -> Gradient:
    """The gradient that an input of type `source` gets from that of an output of type `output`.

    A whole value that a shard or a summand is computed of gets a summand on each rank. A partial gradient of anything
    but a whole value can't be mended by a sum later.
    """
    if gradient in (Gradient.NONE, Gradient.UNKNOWN):
        return gradient
    if isinstance(output, Replicated) and isinstance(source, Replicated):
        return gradient
    if isinstance(output, Sharded | PartialSum | Fill) and isinstance(source, Replicated | Sharded | PartialSum | Fill):
        if gradient is Gradient.PARTIAL:
            return Gradient.MIXED
        if isinstance(source, Replicated):
            return Gradient.PARTIAL
        return gradient
    return Gradient.UNKNOWN
