"""The primitive operations of a program: pure data on concrete names and named mesh axes.

This file is the specification that a runtime interprets; a runtime knows no style and no model.

Values
    Between modules every value is a plain local tensor, one a rank. What it stands for on an axis is said by the
    placements of the transforms that made it: a `Replicate` value is the same on every rank of the axis, a `Shard(d)`
    value is this rank's block of dim `d` (torch's `chunk` sizes: all but the last ones equal, the last ones shorter or
    empty), a `Partial` value is a summand. Negative dims of activations count from the end; dims of parameters are
    never negative.

Gradients
    The gradient of a value in a given placement is itself placed. Each transform says in what placement the gradient
    of its result arrives; the transform's backward brings it to where the gradient of its source belongs:
    `Replicate` and `Partial` sources take a replicated gradient (every rank holds all of it), `Shard` sources their
    block of it.

Order
    Operations apply in program order. For one module, input transforms run in that order before its forward, output
    transforms in that order after it. Operations on different modules commute, except that FSDP groups must be formed
    in program order. Operations that name a module or parameter which this rank's pipeline stage doesn't keep are
    skipped there. A module's forward returns one tensor wherever an operation transforms its output; `None` passes
    through, anything else is an error that names the module.

No operation acts on an axis of size 1: lowering leaves it out, the verifier refuses it.
"""

from dataclasses import dataclass
from typing import Literal

from planc.layouts.layout import Axis
from planc.layouts.placement import Placement


@dataclass(frozen=True, slots=True)
class ShardParameter:
    """Turn `parameter` into a DTensor on the one-dimensional mesh of `axis`, with `placement`.

    `Shard` is torch's `Shard`, `StridedShard(dim, parts)` is torch's `_StridedShard(dim, split_factor=parts)`: chunk
    the dim into `split_factor` parts, each part over the ranks, and concatenate this rank's pieces. `Replicate` makes
    a DTensor whose local tensor is the whole (a rowwise bias). Each parameter is sharded at most once on one axis; a
    later `WrapFsdp` shards dim 0 of the local tensor further.
    """

    parameter: str
    axis: Axis
    placement: Placement
    op: Literal["shard_parameter"] = "shard_parameter"


@dataclass(frozen=True, slots=True)
class TransformInput:
    """Before `module` runs, take its positional input number `argument` from `source` to `target` on `axis`.

    An input that the call doesn't pass by position (too few arguments) is left alone, except that number 0 must be
    there. Backward: the gradient of the result arrives in `gradient`, and goes back to what `source` needs. `size` is
    the global size of the dim that `source` shards, where it does. The cases that styles use:

    - `R -> R`, gradient `P`: forward nothing; backward all-reduce (sum).
    - `R -> S(-1)`, gradient `S(-1)`: forward take this rank's block, no communication; backward all-gather.
    """

    module: str
    axis: Axis
    argument: int
    source: Placement
    target: Placement
    gradient: Placement
    size: int | None = None
    op: Literal["transform_input"] = "transform_input"


@dataclass(frozen=True, slots=True)
class TransformOutput:
    """After `module` ran, take its output from `source` to `target` on `axis`.

    `size` is the global size of the sharded dim where `source` is a `Shard`: it needn't divide by the axis, so that
    local sizes alone don't say how the blocks differ. `gradient` is the placement in which the gradient of the result
    arrives. The cases that styles use:

    - `P -> R`, gradient `R`: forward all-reduce (sum); backward nothing.
    - `S(-1) -> R`, gradient `R`: forward all-gather of blocks that may differ in size; backward take this rank's block.
    """

    module: str
    axis: Axis
    source: Placement
    target: Placement
    gradient: Placement
    size: int | None = None
    op: Literal["transform_output"] = "transform_output"


@dataclass(frozen=True, slots=True)
class RunLocal:
    """While `module` runs, its own DTensor parameters (not those of its children) are their local tensors.

    Gradients flow from the local tensor back into the DTensor with the parameter's own placement (torch's
    `DTensor.to_local` without `grad_placements`). Parameters named in `added_after` (full names; a rowwise bias) are
    hidden (None) while it runs, and added once, after its last output transform.
    """

    module: str
    added_after: tuple[str, ...] = ()
    op: Literal["run_local"] = "run_local"


@dataclass(frozen=True, slots=True)
class RunDistributed:
    """Run `module` under DTensor's own rules on the mesh of `axis`.

    Its first positional input becomes a DTensor with placement `source` (no communication), its parameters are used
    as they are, its output is redistributed to `target` and made local. Gradients are DTensor's: backward of
    `to_local` takes the gradient to be placed as `target`, backward of `from_local` brings it to `source`. Stands
    where a style is used on a module class whose arithmetic planc doesn't know (`embedding_rowwise` on a norm).
    """

    module: str
    axis: Axis
    source: Placement
    target: Placement
    op: Literal["run_distributed"] = "run_distributed"


@dataclass(frozen=True, slots=True)
class LookupShard:
    """`module` is an embedding of `size` rows, of which each rank of `axis` holds its block (`Shard(0)`).

    Before it runs, ids are made local (id minus the block's first row; ids of other ranks' rows become any valid
    row), after it ran the output rows of those ids are zeroed, before any output transform: the result is `Partial`.
    Comes after `RunLocal(module)`. A rank whose block is empty yields zeros. The module's `padding_idx` is made local
    in the same way, so that the gradient of its row stays zero.
    """

    module: str
    axis: Axis
    size: int
    op: Literal["lookup_shard"] = "lookup_shard"


@dataclass(frozen=True, slots=True)
class SumGradient:
    """All-reduce (sum) the gradient of `parameter` over `axis` each time it has been accumulated in a backward."""

    parameter: str
    axis: Axis
    op: Literal["sum_gradient"] = "sum_gradient"


@dataclass(frozen=True, slots=True)
class SumOutputGradient:
    """Forward nothing; backward all-reduce (sum) over `axis` the gradient of the last `features` of `module`'s output.

    The gradient of the features before them is passed on as it is (MLA: the rotary part of the compressed KV).
    """

    module: str
    axis: Axis
    features: int
    op: Literal["sum_output_gradient"] = "sum_output_gradient"


@dataclass(frozen=True, slots=True)
class DivideInput:
    """Divide the first input of `module` by the size of `axis` (an identity expert whose outputs are summed)."""

    module: str
    axis: Axis
    op: Literal["divide_input"] = "divide_input"


@dataclass(frozen=True, slots=True)
class LocalExperts:
    """Each rank of `axis` holds `count` experts of `module`: set its `num_experts` to `count`.

    transformers' experts forwards then skip local ids of `count` and above (`module._is_expert_parallel = True`).
    Comes before the module's `DispatchExperts`.
    """

    module: str
    axis: Axis
    count: int
    op: Literal["local_experts"] = "local_experts"


@dataclass(frozen=True, slots=True)
class DispatchExperts:
    """Bring the experts of `module` their tokens over `axis`; the ranks of `batch_axis` hold the same tokens.

    `module` is called with `(hidden_states, top_k_index, top_k_weights)`, global expert ids, and returns the weighted
    output of this rank's tokens in the dtype of `hidden_states`. `implementation` names how: `all_to_all`,
    `all_reduce`, `deepgemm_megamoe`, `auto` (`all_reduce` without gradients where the group shares one batch, else
    `all_to_all`), or a registered one. Comes after `RunLocal(module)`; `batch_axis` may have size 1.
    """

    module: str
    axis: Axis
    batch_axis: Axis
    implementation: str
    op: Literal["dispatch_experts"] = "dispatch_experts"


@dataclass(frozen=True, slots=True)
class WrapFsdp:
    """Shard `modules` as one FSDP2 group over `axes`: `(shard,)`, or `(replicate, shard)` for HSDP.

    Parameters that an earlier group took are not in it. FSDP2 shards dim 0 of each rank's local tensor. The module
    name `""` is the model itself, always wrapped last. `reshard_after_forward` None leaves FSDP2's own choice (the
    root). `mixed_precision`: bfloat16 parameters, float32 reduction. `gradient_divisor` replaces FSDP2's own (the
    group's size) where given; `sum_gradients` makes the reduction a plain sum and divides on each rank
    (`set_force_sum_reduction_for_comms`), which backends without PREMUL_SUM need and which must be off where the
    shard axis has size 1, lest the gradient is divided twice.
    """

    modules: tuple[str, ...]
    axes: tuple[Axis, ...]
    reshard_after_forward: bool | None
    mixed_precision: bool = False
    cpu_offload: bool = False
    gradient_divisor: int | None = None
    sum_gradients: bool = False
    op: Literal["wrap_fsdp"] = "wrap_fsdp"


@dataclass(frozen=True, slots=True)
class SplitStages:
    """Keep layers `[start, end)` of the module list `layers` on each stage of the `pp` axis, in rank order.

    Layers of other stages, and the modules that only the first (`first`) or only the last (`last`) stage keeps, are
    replaced by an identity that returns its first argument. A module in both is kept on the first and the last stage
    (an embedding that a tied head shares). A stage but the first takes hidden states in place of ids; the last one's
    logits are broadcast to all.
    """

    layers: str
    ranges: tuple[tuple[int, int], ...]
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    op: Literal["split_stages"] = "split_stages"


@dataclass(frozen=True, slots=True)
class CustomStyle:
    """Hand `target` (a parameter, or a module to hook) to a registered style class that planc doesn't know inside.

    A parameter: `shard_param(module, parameter_name, mesh)`. A module: `install_forward(module, mesh)`, where the
    class has none of its own that of transformers 5.24.0's `TensorParallelLayer`.
    """

    target: str
    is_parameter: bool
    axis: Axis
    style: str
    arguments: tuple[tuple[str, int | str], ...] = ()
    op: Literal["custom_style"] = "custom_style"


Operation = (
    ShardParameter
    | TransformInput
    | TransformOutput
    | RunLocal
    | RunDistributed
    | LookupShard
    | SumGradient
    | SumOutputGradient
    | DivideInput
    | LocalExperts
    | DispatchExperts
    | WrapFsdp
    | SplitStages
    | CustomStyle
)
OPERATIONS: tuple[type[Operation], ...] = (
    ShardParameter,
    TransformInput,
    TransformOutput,
    RunLocal,
    RunDistributed,
    LookupShard,
    SumGradient,
    SumOutputGradient,
    DivideInput,
    LocalExperts,
    DispatchExperts,
    WrapFsdp,
    SplitStages,
    CustomStyle,
)
