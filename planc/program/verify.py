"""The verifier: what must hold for every program, after every pass and before a runtime trusts a file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from planc.ir.operations import (
    CustomStyle,
    DispatchExperts,
    LocalExperts,
    LookupShard,
    Operation,
    RunDistributed,
    RunLocal,
    ShardParameter,
    SplitStages,
    SumGradient,
    SumOutputGradient,
    TransformInput,
    TransformOutput,
    WrapFsdp,
)
from planc.layouts.layout import Axis, Layout
from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.model.manifest import Manifest
from planc.program.program import Program
from planc.styles.fsdp import KeepFullWeight

# FSDP shards by WrapFsdp alone, stages are split by SplitStages alone.
TENSOR_AXES: tuple[Axis, ...] = ("tp", "ep")


def verify(program: Program, manifest: Manifest) -> list[str]:
    """Every fault of `program` on the model of `manifest`, as sentences; empty where it is sound."""
    state = _State(manifest, program.layout)
    faults = list(dict.fromkeys(_layout_faults(program)))
    for operation in program.operations:
        faults += state.faults(operation)
    faults += state.final_faults()
    return list(dict.fromkeys(faults))


def _layout_faults(program: Program) -> Iterator[str]:
    layout = program.layout
    if (layout.fsdp_size * layout.tp_size) % layout.ep_size:
        yield f"ep_size={layout.ep_size} doesn't divide fsdp_size * tp_size = {layout.fsdp_size * layout.tp_size}"
    if layout.ep_size > 1 and layout.ep_size % layout.tp_size:
        yield f"ep_size={layout.ep_size} is no multiple of tp_size={layout.tp_size}"


@dataclass(slots=True)
class _State:
    """What the operations so far did."""

    manifest: Manifest
    layout: Layout
    placed: dict[tuple[str, Axis], Placement] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    dispatched: set[str] = field(default_factory=set)
    wrapped: set[str] = field(default_factory=set)
    summed: set[str] = field(default_factory=set)
    # By what is transformed: a module's output (None) or an input of it, on one axis.
    transformed: dict[tuple[str, int | None, Axis], TransformInput | TransformOutput] = field(default_factory=dict)
    lookups: list[LookupShard] = field(default_factory=list)
    staged: bool = False

    def faults(self, operation: Operation) -> Iterator[str]:
        """The faults of one operation, given those before it."""
        for name in _modules(operation):
            if name and name not in self.manifest.modules:
                yield f"{operation.op}: the model has no module `{name}`"
                return
        for name in _parameters(operation):
            if name not in self.manifest.parameters:
                yield f"{operation.op}: the model has no parameter `{name}`"
                return
        axis: Axis | None = getattr(operation, "axis", None)
        if axis is not None and self.layout.size(axis) == 1:
            yield f"{operation.op}: the axis `{axis}` has one rank"
        elif axis is not None and axis not in TENSOR_AXES:
            yield f"{operation.op}: `{axis}` is no axis of tensor or expert parallelism"
        if isinstance(operation, ShardParameter):
            yield from self._shard(operation)
        elif isinstance(operation, TransformInput | TransformOutput):
            yield from self._transform(operation)
        elif isinstance(operation, RunDistributed):
            yield from _run_distributed(operation)
        elif isinstance(operation, RunLocal):
            yield from self._run_local(operation)
        elif isinstance(operation, LookupShard):
            yield from self._lookup(operation)
        elif isinstance(operation, SumOutputGradient):
            if not 1 <= operation.features <= self._size(operation.module, "out_features", operation.features):
                yield f"sum_output_gradient: {operation.features} features of `{operation.module}`"
        elif isinstance(operation, SumGradient):
            yield from self._sum(operation)
        elif isinstance(operation, LocalExperts):
            yield from self._local_experts(operation)
        elif isinstance(operation, DispatchExperts):
            yield from self._dispatch(operation)
        elif isinstance(operation, WrapFsdp):
            yield from self._wrap(operation)
        elif isinstance(operation, SplitStages):
            yield from self._split(operation)

    def final_faults(self) -> Iterator[str]:
        """What only the whole program shows: of tied parameters, look-ups in shards, scalars in an FSDP group."""
        for tied, owner in self.manifest.file.ties:
            for axis in ("tp", "ep"):
                pair = [self.placed.get((name, axis), Replicate()) for name in (tied, owner)]
                if pair[0] != pair[1]:
                    yield f"`{tied}` ({pair[0]}) and `{owner}` ({pair[1]}) are one tensor with two placements on {axis}"
        for lookup in self.lookups:
            own = self.manifest.modules[lookup.module].parameters
            if not any(self.placed.get((name, lookup.axis)) == Shard(0) for name in own):
                yield f"lookup_shard: the rows of `{lookup.module}` aren't sharded on {lookup.axis}"
        if self.wrapped:
            for name, (_, parameter) in self.manifest.parameters.items():
                if not parameter.shape:
                    yield f"wrap_fsdp: `{name}` is a scalar, FSDP2 has no dim to shard"

    def _shard(self, operation: ShardParameter) -> Iterator[str]:
        shape = self.manifest.parameters[operation.parameter][1].shape
        name, placement = operation.parameter, operation.placement
        if isinstance(placement, Partial):
            yield f"shard_parameter: `{name}` is a parameter, which can't be partial"
        elif isinstance(placement, Shard | StridedShard) and not 0 <= placement.dim < len(shape):
            yield f"shard_parameter: `{name}` has the shape {shape}, {placement} needs dim {placement.dim}"
        if isinstance(placement, StridedShard) and placement.split_factor < 1:
            yield f"shard_parameter: `{name}` in {placement.split_factor} parts"
        if (name, operation.axis) in self.placed:
            yield f"shard_parameter: `{name}` is placed twice on {operation.axis}"
        other: Axis = "tp" if operation.axis == "ep" else "ep"
        if (name, other) in self.placed:
            yield f"shard_parameter: `{name}` is placed on {operation.axis}, and lies on {other} already"
        if self._around(name) & self.wrapped:
            yield f"shard_parameter: `{name}` is in an FSDP group already"
        self.placed[name, operation.axis] = placement

    def _sum(self, operation: SumGradient) -> Iterator[str]:
        placement = self.placed.get((operation.parameter, operation.axis))
        if isinstance(placement, Shard | StridedShard):
            yield f"sum_gradient: the ranks of {operation.axis} hold different parts of `{operation.parameter}`"
        if operation.parameter in self.summed:
            yield f"sum_gradient: the gradient of `{operation.parameter}` is summed twice"
        self.summed.add(operation.parameter)

    def _transform(self, operation: TransformInput | TransformOutput) -> Iterator[str]:
        argument = operation.argument if isinstance(operation, TransformInput) else None
        if argument is not None and not 0 <= argument < self._inputs(operation.module):
            yield f"transform_input: `{operation.module}` has no argument {argument}"
        placements = (operation.source, operation.target, operation.gradient)
        yield from (
            f"{operation.op}: no local tensor of `{operation.module}` goes from or to {placement}"
            for placement in placements
            if isinstance(placement, StridedShard)
        )
        if isinstance(operation.target, Partial):
            yield f"{operation.op}: `{operation.module}` would hand on a partial value"
        gathers = isinstance(operation.source, Shard) and isinstance(operation.target, Replicate)
        if gathers and (operation.size or 0) < 1:
            yield f"{operation.op}: gathering `{operation.module}` needs the size of the whole dim"
        elif operation.source == Shard(-1) and operation.size is not None and argument in (None, 0):
            features = ("in_features",) if argument == 0 else ("out_features", "embedding_dim")
            known = [self._size(operation.module, name, operation.size) for name in features]
            if any(size != operation.size for size in known):
                yield f"{operation.op}: the last dim of `{operation.module}` isn't {operation.size} wide"
        before = self.transformed.get((operation.module, argument, operation.axis))
        if before is not None and not _follows(before, operation):
            yield (
                f"{operation.op}: `{operation.module}` is transformed twice on {operation.axis}, first to "
                f"{before.target} (gradient {before.gradient}), then from {operation.source}"
            )
        self.transformed[operation.module, argument, operation.axis] = operation

    def _inputs(self, module: str) -> float:
        """How many positional inputs the module can have."""
        entry = self.manifest.modules[module].entry
        if entry.sizes.keys() & {"in_features", "num_embeddings"}:
            return 1
        return 3 if entry.experts is not None and entry.experts.routed else inf

    def _size(self, module: str, name: str, otherwise: int) -> int:
        return self.manifest.modules[module].entry.sizes.get(name, otherwise)

    def _run_local(self, operation: RunLocal) -> Iterator[str]:
        own = self.manifest.modules[operation.module].parameters
        yield from (
            f"run_local: `{name}` is no parameter of `{operation.module}` itself"
            for name in operation.added_after
            if name not in own
        )
        self.local.add(operation.module)

    def _lookup(self, operation: LookupShard) -> Iterator[str]:
        if operation.module not in self.local:
            yield f"lookup_shard: `{operation.module}` isn't run on its local rows"
        rows = [p.shape[0] for p in self.manifest.modules[operation.module].entry.parameters if len(p.shape) == 2]
        if operation.size not in rows:
            yield f"lookup_shard: `{operation.module}` has no weight of {operation.size} rows"
        self.lookups.append(operation)

    def _local_experts(self, operation: LocalExperts) -> Iterator[str]:
        whole = operation.count * self.layout.size(operation.axis)
        parameters = self.manifest.modules[operation.module].entry.parameters
        if not any(p.shape and p.shape[0] == whole for p in parameters):
            yield f"local_experts: `{operation.module}` has no parameter of {whole} experts"
        if operation.module in self.dispatched:
            yield f"local_experts: `{operation.module}` dispatches to its experts already"

    def _dispatch(self, operation: DispatchExperts) -> Iterator[str]:
        if operation.module not in self.local:
            yield f"dispatch_experts: `{operation.module}` isn't run on its local experts"
        if "num_experts" not in self.manifest.modules[operation.module].entry.sizes:
            yield f"dispatch_experts: `{operation.module}` holds no experts"
        if operation.batch_axis != "tp":
            yield f"dispatch_experts: the ranks of {operation.batch_axis} don't hold the same tokens"
        self.dispatched.add(operation.module)

    def _wrap(self, operation: WrapFsdp) -> Iterator[str]:
        if operation.axes[-1:] not in (("fsdp",), ("efsdp",)) or operation.axes[:-1] not in ((), ("dp_replicate",)):
            yield f"wrap_fsdp: the axes {operation.axes} are neither a shard axis nor a replicate and a shard axis"
        if operation.gradient_divisor not in (None, self.layout.dp_size):
            batches = f"{self.layout.dp_size} ranks see a batch of their own"
            yield f"wrap_fsdp: gradients are divided by {operation.gradient_divisor}, and {batches}"
        if operation.sum_gradients and operation.axes and self.layout.size(operation.axes[-1]) == 1:
            yield f"wrap_fsdp: a sum over {operation.axes[-1]}, which has one rank, divides gradients twice"
        if not operation.modules:
            yield "wrap_fsdp: a group of no modules"
        for name in operation.modules:
            if objection := KeepFullWeight().objection(self.manifest.modules[name]):
                yield f"wrap_fsdp: `{name}`: {objection}"
            if name in self.wrapped or operation.modules.count(name) > 1:
                yield f"wrap_fsdp: `{name or 'the model'}` is wrapped twice"
            elif outer := self._around(name) & {*self.wrapped, *operation.modules}:
                yield f"wrap_fsdp: `{name}` is wrapped after `{min(outer) or 'the model'}`, which contains it"
        self.wrapped.update(operation.modules)

    def _split(self, operation: SplitStages) -> Iterator[str]:
        if self.staged:
            yield "split_stages: the stages are split twice"
        self.staged = True
        prefix = f"{operation.layers}."
        for name in (*operation.first, *operation.last):
            if {name, *self._around(name)} & {operation.layers} or name in {"", *self._around(operation.layers)}:
                yield f"split_stages: `{name or 'the model'}` is no module beside `{operation.layers}`"
        embedding = f"{operation.layers.rpartition('.')[0]}.embed_tokens"
        if not set(operation.first) <= {self.manifest.file.input_embeddings, embedding}:
            yield f"split_stages: {', '.join(f'`{n}`' for n in operation.first)} can't be left to the first stage"
        layers = {n.removeprefix(prefix).partition(".")[0] for n in self.manifest.modules if n.startswith(prefix)}
        if layers != {str(number) for number in range(len(layers))}:
            yield f"split_stages: `{operation.layers}` is no list of layers"
        bounds = [bound for pair in operation.ranges for bound in pair]
        if len(operation.ranges) != self.layout.pp_size:
            yield f"split_stages: {len(operation.ranges)} stages for pp_size={self.layout.pp_size}"
        if (
            bounds != sorted(bounds)
            or bounds[1:-1:2] != bounds[2::2]
            or [*bounds[:1], *bounds[-1:]] != [0, len(layers)]
        ):
            yield f"split_stages: {operation.ranges} don't cover the {len(layers)} layers of `{operation.layers}` once"

    def _around(self, name: str) -> set[str]:
        """The modules that contain `name`, the model itself among them."""
        around = {""} if name else set()
        while "." in name:
            name = name.rpartition(".")[0]
            around.add(name)
        return around


def _follows(before: TransformInput | TransformOutput, operation: TransformInput | TransformOutput) -> bool:
    """Whether one transform starts where another ended, forward and with its gradient."""
    gradient = operation.source if isinstance(operation.source, Shard) else Replicate()
    return before.target == operation.source and before.gradient == gradient


def _run_distributed(operation: RunDistributed) -> Iterator[str]:
    if isinstance(operation.target, Partial):
        yield f"run_distributed: `{operation.module}` would hand on a partial value"
    if isinstance(operation.source, StridedShard) or isinstance(operation.target, StridedShard):
        yield f"run_distributed: no local tensor of `{operation.module}` is in strided shards"


def _modules(operation: Operation) -> Iterable[str]:
    if isinstance(operation, WrapFsdp):
        return operation.modules
    if isinstance(operation, SplitStages):
        return (operation.layers, *operation.first, *operation.last)
    if isinstance(operation, CustomStyle):
        return () if operation.is_parameter else (operation.target,)
    return (operation.module,) if hasattr(operation, "module") else ()


def _parameters(operation: Operation) -> Iterable[str]:
    if isinstance(operation, CustomStyle):
        return (operation.target,) if operation.is_parameter else ()
    return (operation.parameter,) if hasattr(operation, "parameter") else ()
