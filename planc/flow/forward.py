"""The forward pass over a flow: the type of every value, and where types don't fit."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from planc.flow import operations
from planc.flow.boundaries import Boundary
from planc.flow.plan import PlacedModel
from planc.flow.problems import RECOVERED, CantFollowError, Kind, MismatchError, Problem, Unfollowed
from planc.flow.step import RULES, Step, origin_of
from planc.flow.types import WHOLE, WRONG, Fill, Origin, PartialSum, Replicated, Sharded, Type, Unknown, Wrong
from planc.layouts.placement import Partial, Replicate
from planc.model.dataflow import VALUE, Flow, Operation

operations.load()
_EDGES = ("enter", "leave")
# Behind them lies another layer's work: what is whole there needn't be cut for what comes after.
_PRODUCTS = frozenset({"linear", "embedding", "matmul", "bmm", "mm", "baddbmm", "addmm", "einsum", "grouped_mm"})
# So many parameters are named as the sources of a whole value, of so many operations.
_MOST_SOURCES, _MOST_STEPS = 4, 60


@dataclass
class Forward:
    """Types by value id.

    `boundaries` are the styles at work, by the number of the `enter` or `leave`; `skipped` the operations in modules of
    another axis; `added_after` the biases that are added once, after a sum; `recovered` values that
    are taken to be complete after a fault. `changed` are in-place changes of what a style handed on, which the runtime
    of transformers refuses: no types are wrong there.
    """

    flow: Flow
    types: list[Type]
    problems: list[Problem] = field(default_factory=list)
    unfollowed: list[Unfollowed] = field(default_factory=list)
    boundaries: dict[int, Boundary] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    added_after: set[int] = field(default_factory=set)
    recovered: set[int] = field(default_factory=set)
    changed: list[Problem] = field(default_factory=list)


def forward(flow: Flow, model: PlacedModel) -> Forward:
    """Propagate types through `flow`. Each fault is told once: what follows from it is `Wrong`, and silent."""
    return _Pass(flow, model).run()


def parameter_values(flow: Flow) -> dict[int, str]:
    """The values that are parameters, with their names in the flow's own layers."""
    return {
        value: source.removeprefix("parameter:")
        for value, source in flow.sources.items()
        if source.startswith("parameter:")
    }


def whole_sources(passed: Forward, model: PlacedModel, values: tuple[int, ...]) -> tuple[str, ...]:
    """The parameters that the whole ones of `values` come from, the nearest first; none where all are cut."""
    parameters, producers = parameter_values(passed.flow), passed.flow.producers
    waiting = deque(value for value in values if isinstance(passed.types[value], Replicated))
    found: dict[str, None] = {}
    seen = set(waiting)
    for _ in range(_MOST_STEPS):
        if not waiting or len(found) >= _MOST_SOURCES:
            break
        value = waiting.popleft()
        if value in parameters:
            found[model.name(parameters[value])] = None
            continue
        op = producers.get(value)
        if op is None:
            continue
        behind = [other for other in op.inputs if op.name not in _PRODUCTS or other in parameters]
        waiting.extend(other for other in behind if other not in seen)
        seen.update(behind)
    return tuple(found)


class _Pass:
    def __init__(self, flow: Flow, model: PlacedModel) -> None:
        self.flow, self.model = flow, model
        self.types: list[Type] = [WHOLE] * len(flow.shapes)
        self.result = Forward(flow, self.types)
        self._parameters = parameter_values(flow)
        for value, source in flow.sources.items():
            if source == "unseen":
                self.types[value] = Unknown("it comes from a function that was not watched")
        self._boundaries = {number: self._boundary(number) for number in range(len(flow.modules))}
        self._special = {value for value in self._parameters if model.placement(self._parameters[value])[0] is not None}

    def run(self) -> Forward:
        closed: int | None = None
        special = self._special
        for number, op in enumerate(self.flow.operations):
            if closed is not None:
                self.result.skipped.add(number)
                if op.name == "leave" and op.module == closed:
                    self._leave_closed(op)
                    closed = None
                continue
            if op.name == "enter" and self._is_closed(op):
                self.result.skipped.add(number)
                closed = op.module
                continue
            if "in_place" in op.keywords and self.flow.differentiable[op.outputs[0]]:
                self._in_place(op)
            is_plain = special.isdisjoint(op.inputs) and special.isdisjoint(op.sizes)
            if is_plain and self._boundaries[op.module] is None:
                continue
            if op.name == "enter":
                self._enter(number, op)
            elif op.name == "leave":
                self._leave(number, op)
            else:
                self._compute(op)
            special.update(value for value in op.outputs if self.types[value] is not WHOLE)
        self._outputs()
        return self.result

    def _name(self, op: Operation) -> str:
        return self.model.name(self.flow.modules[op.module])

    def _is_closed(self, op: Operation) -> bool:
        """Whether the pass doesn't look into the module that `op` enters."""
        name = self._name(op)
        return name in self.model.opaque or name in self.model.foreign

    def _leave_closed(self, op: Operation) -> None:
        if self._name(op) not in self.model.foreign:
            return
        for value in op.outputs:
            self.types[value] = Unknown("a style that is not known inside")
            self._special.add(value)

    def _boundary(self, number: int) -> Boundary | None:
        name = self.flow.modules[number]
        style = self.model.style(name)
        if style is None or self.model.module(name) is None:
            return None
        return Boundary(self.model.type(name), style.name, self.model.name(name), self.model.ranks)

    def _enter(self, number: int, op: Operation) -> None:
        boundary = self._boundaries[op.module]
        for value, inner in zip(op.inputs, op.outputs, strict=True):
            self.types[inner] = self.types[value]
        if boundary is None:
            return
        self.result.boundaries[number] = boundary
        if boundary.type.distributed and self.model.holds_weights_inside(self.flow.modules[op.module]):
            detail = f"`{boundary.style}` hands distributed tensors to the modules inside, whose weights are local"
            self._mismatch(op, MismatchError(Kind.MIXED_TENSORS, detail))
        if not (boundary.type.input is not None or boundary.type.divides_input):
            return
        if not op.arguments:
            self._mismatch(
                op, MismatchError(Kind.CALL, f"`{boundary.style}` takes positional inputs, and the module gets none")
            )
            return
        for argument, (value, inner) in positional(op).items():
            if argument in boundary.type.arguments:
                self.types[inner] = self._guarded(
                    op, partial(boundary.enter, self.types[value], self.flow.shapes[value], value)
                )

    def _leave(self, number: int, op: Operation) -> None:
        boundary = self._boundaries[op.module]
        for value, outer in zip(op.inputs, op.outputs, strict=True):
            self.types[outer] = self.types[value]
        if boundary is None:
            return
        self.result.boundaries[number] = boundary
        if boundary.transforms_output and len(op.arguments) > 1:
            self._mismatch(
                op,
                MismatchError(
                    Kind.CALL, f"`{boundary.style}` takes one output, and the module has {len(op.arguments)}"
                ),
            )
            self.types[op.outputs[0]] = WRONG
        elif op.outputs:
            value, outer = op.inputs[0], op.outputs[0]
            self.types[outer] = self._guarded(
                op, partial(boundary.leave, self.types[value], self.flow.shapes[value], value)
            )

    def _guarded(self, op: Operation, rule: Callable[[], Type]) -> Type:
        kinds = [self.types[value] for value in op.inputs]
        try:
            return rule()
        except MismatchError as error:
            if any(isinstance(kind, Wrong) for kind in kinds[:1]):
                return WRONG
            self._mismatch(op, error)
            return WRONG
        except CantFollowError as error:
            return self._lost(op, str(error))

    def _compute(self, op: Operation) -> None:
        inputs = op.inputs
        reading = {value: self._parameter(value, op) for value in inputs if value in self._parameters}
        kinds = [reading.get(value) or self.types[value] for value in inputs]
        mixed = next((value for value, kind in reading.items() if kind is None), None)
        if mixed is not None:
            self._mixed(op, mixed)
            return
        sized = [self.types[value] for value in op.sizes]
        if any(isinstance(kind, Wrong) for kind in (*kinds, *sized)):
            self._set(op, WRONG)
        elif any(isinstance(kind, Unknown) for kind in (*kinds, *sized)):
            self._set(op, next(kind for kind in (*kinds, *sized) if isinstance(kind, Unknown)))
        elif all(isinstance(kind, Replicated) for kind in (*kinds, *sized)):
            self._set(op, WHOLE)
        else:
            self._apply(op, inputs, reading)

    def _in_place(self, op: Operation) -> None:
        """Note a change of what transformers' own runtime hands on as a view, which torch refuses in training.

        Most of its styles do: by DTensor's `to_local`, or by `_AllReduceForward`.
        """
        for source in self._outputs_changed(op):
            boundary = self._boundaries[source.module]
            if boundary is not None and boundary.hands_on_a_view:
                detail = f"`{op.name}` changes the output of `{boundary.style}` in place"
                problem = self._described(op, Kind.CHANGED_OUTPUT, detail, (op.inputs[0],), (boundary.origin,))
                self.result.changed.append(problem)
                return

    def _outputs_changed(self, op: Operation) -> Iterator[Operation]:
        """The `leave`s of modules whose output `op` changes: in its memory, and what its first input was made from."""
        in_memory = op.keywords["in_place"]
        value, seen = op.inputs[0], set[int]()
        while isinstance(in_memory, list) and value not in seen and value in self.flow.producers:
            seen.add(value)
            source = self.flow.producers[value]
            if source.name == "leave" and value in in_memory:
                yield source
            if not source.inputs:
                return
            # A view's first argument is what it views; modules hand on each value under a new id.
            edges = dict(zip(source.outputs, source.inputs, strict=True)) if source.name in _EDGES else {}
            value = edges.get(value, source.inputs[0])

    def _apply(self, op: Operation, inputs: tuple[int, ...], reading: dict[int, Type | None]) -> None:
        rule = RULES.get(op.name)
        if rule is None:
            self._set(op, self._lost(op, "no rule for it"))
            return
        boundary = self._boundaries[op.module]
        step = Step(
            self.flow,
            op,
            inputs,
            lambda value: reading.get(value) or self.types[value],
            len(self.model.ranks.looked_at),
            looks_up_shard=boundary is not None and boundary.type.lookup,
            added_later=frozenset() if boundary is None else self._added_later(boundary, inputs),
        )
        try:
            result = rule(step)
        except MismatchError as error:
            self._mismatch(op, error, reading)
            self._set(op, WHOLE if error.kind in RECOVERED else WRONG)
            if error.kind in RECOVERED:
                self.result.recovered.add(op.outputs[0])
        except CantFollowError as error:
            self._set(op, self._lost(op, str(error)))
        except (TypeError, ValueError, LookupError, ArithmeticError):
            # Arguments may be anything that a model, or whoever wrote the manifest, thought of.
            self._set(op, self._lost(op, "its arguments are not understood"))
        else:
            kinds = list(result) if isinstance(result, Sequence) else [result] * len(op.outputs)
            for value, kind in zip(op.outputs, kinds, strict=True):
                self.types[value] = kind
            self.result.added_after.update(step.added_later)

    def _added_later(self, boundary: Boundary, inputs: tuple[int, ...]) -> frozenset[int]:
        """The module's own bias, if `inputs` has it and the style adds it after the sum.

        A Linear of a class of its own may add it in a step of its own (Falcon); all of them run without one.
        """
        name = f"{boundary.target}.bias"
        if not (isinstance(boundary.type.yields, Partial) and isinstance(self.model.placement(name)[0], Replicate)):
            return frozenset()
        return frozenset(v for v in inputs if v in self._parameters and self.model.name(self._parameters[v]) == name)

    def _set(self, op: Operation, kind: Type) -> None:
        for value in op.outputs:
            self.types[value] = kind

    def _parameter(self, value: int, op: Operation) -> Type | None:
        """The type of a parameter as `op` reads it; None where a whole-tensor module reads a sharded one."""
        name = self._parameters[value]
        placement, origin = self.model.placement(name)
        if placement is None:
            return WHOLE
        owner = name.rpartition(".")[0]
        here = self.flow.modules[op.module]
        inside = here == owner or here.startswith(f"{owner}.")
        style = self.model.type(owner)
        if inside and style.distributed:
            return WHOLE
        if not inside or not style.runs_local:
            return None
        self.types[value] = self.model.ranks.place(placement, self.flow.shapes[value], origin)
        return self.types[value]

    def _mixed(self, op: Operation, value: int) -> None:
        name = self.model.name(self._parameters[value])
        _, origin = self.model.placement(self._parameters[value])
        self._problem(
            op,
            Kind.MIXED_TENSORS,
            f"`{name}` is sharded, and the module computes on whole tensors",
            (value,),
            (origin,),
        )
        self._set(op, WRONG)

    def _lost(self, op: Operation, reason: str) -> Unknown:
        origins = tuple(dict.fromkeys(o for value in op.inputs if (o := origin_of(self.types[value])) is not None))
        module = self.model.name(self.flow.modules[op.module])
        self.result.unfollowed.append(Unfollowed(module, op.name, reason, origins))
        return Unknown(f"`{op.name}` in `{module}`: {reason}")

    def _mismatch(self, op: Operation, error: MismatchError, reading: dict[int, Type | None] | None = None) -> None:
        origins = [origin_of((reading or {}).get(value) or self.types[value]) for value in error.values]
        self._problem(op, error.kind, error.detail, error.values, origins)

    def _problem(
        self,
        op: Operation,
        kind: Kind,
        detail: str,
        values: tuple[int, ...],
        origins: "list[Origin | None] | tuple[Origin | None, ...]",
    ) -> None:
        self.result.problems.append(self._described(op, kind, detail, values, origins))

    def _described(
        self,
        op: Operation,
        kind: Kind,
        detail: str,
        values: tuple[int, ...],
        origins: "list[Origin | None] | tuple[Origin | None, ...]",
    ) -> Problem:
        module = self.flow.modules[op.module]
        apart = [value for value in values if not isinstance(self.types[value], Replicated)] or list(values)
        path = [self.model.name(name) for value in apart[:1] for name in self._path(value, module)]
        return Problem(
            kind,
            self.model.name(module),
            op.name,
            detail,
            path=tuple(dict.fromkeys(path)),
            types=tuple(self.types[value] for value in values),
            origins=tuple(dict.fromkeys(origin for origin in origins if origin is not None)),
            whole=whole_sources(self.result, self.model, values) if kind is Kind.SHARDS_DISAGREE else (),
        )

    def _path(self, value: int, end: str) -> list[str]:
        """The modules through which a value that isn't whole came, first to last."""
        names = [end]
        seen: set[int] = set()
        while value not in seen and value in self.flow.producers:
            seen.add(value)
            op = self.flow.producers[value]
            if op.name in ("leave", "linear") and names[-1] != self.flow.modules[op.module]:
                names.append(self.flow.modules[op.module])
            behind = [v for v in op.inputs if not isinstance(self.types[v], Replicated)]
            behind = [v for v in behind if v not in self._parameters]
            if not behind:
                break
            value = behind[0]
        return list(reversed(names))

    def _outputs(self) -> None:
        for value in self.flow.outputs[:1]:
            kind = self.types[value]
            if isinstance(kind, Sharded | PartialSum | Fill):
                origin = origin_of(kind)
                what = "a shard" if isinstance(kind, Sharded) else "a partial sum"
                self.result.problems.append(
                    Problem(
                        Kind.UNREDUCED if isinstance(kind, PartialSum) else Kind.NEEDS_WHOLE,
                        "",
                        "output",
                        f"what comes out is {what}",
                        tuple(self.model.name(name) for name in self._path(value, "")),
                        (kind,),
                        () if origin is None else (origin,),
                    )
                )


def positional(op: Operation) -> dict[int, tuple[int, int]]:
    """Positional inputs that are tensors: their value outside and inside, by position."""
    inner = dict(zip(op.inputs, op.outputs, strict=True))
    return {
        position: (argument[1], inner[argument[1]])
        for position, argument in enumerate(op.arguments)
        if isinstance(argument, list | tuple) and len(argument) == 2 and argument[0] == VALUE
    }
