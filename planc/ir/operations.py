"""The primitive operations of a program: pure data on concrete names and named mesh axes.

Between modules every value is a plain local tensor; what it stands for on an axis is said by placements. A runtime
interprets these operations and knows no style and no model.
"""

from dataclasses import dataclass
from typing import Literal

from planc.layouts.layout import Axis
from planc.layouts.placement import Placement


@dataclass(frozen=True, slots=True)
class ShardParameter:
    """Turn `parameter` into a DTensor with `placement` on `axis`."""

    parameter: str
    axis: Axis
    placement: Placement
    op: Literal["shard_parameter"] = "shard_parameter"


@dataclass(frozen=True, slots=True)
class TransformInput:
    """Before `module` runs, take its positional input number `argument` from `source` to `target` on `axis`.

    `gradient` is the placement in which the gradient of `target` comes back: `Partial` means that it must be summed.
    `size` is the whole extent of the dim that `source` shards; without it the ranks tell each other their widths at
    every call.
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
    """After `module` ran, take its output from `source` to `target` on `axis`; `gradient` is that of `target`.

    `size` is the whole extent of the dim that `source` shards (a Linear's `out_features`); without it the ranks tell
    each other their widths at every call.
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
    """Run `module` on the local shards of its own parameters.

    Those named in `added_after` (a rowwise bias) are hidden while it runs and added once, after its output transform.
    """

    module: str
    added_after: tuple[str, ...] = ()
    op: Literal["run_local"] = "run_local"


@dataclass(frozen=True, slots=True)
class LookupShard:
    """`module` is an embedding whose vocabulary is sharded on `axis`: ids outside this rank's rows look up zero."""

    module: str
    axis: Axis
    op: Literal["lookup_shard"] = "lookup_shard"


@dataclass(frozen=True, slots=True)
class SumGradient:
    """Sum the gradient of `parameter` over `axis` after it has been accumulated."""

    parameter: str
    axis: Axis
    op: Literal["sum_gradient"] = "sum_gradient"


@dataclass(frozen=True, slots=True)
class SumOutputGradient:
    """Sum the gradient of the last `features` features of the output of `module` over `axis` (MLA's rotary part)."""

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
    """`module` holds only `count` experts of each rank's own: its `num_experts` becomes that."""

    module: str
    axis: Axis
    count: int
    op: Literal["local_experts"] = "local_experts"


@dataclass(frozen=True, slots=True)
class DispatchExperts:
    """Bring the experts of `module` their tokens over `axis`; the ranks of `batch_axis` hold the same tokens."""

    module: str
    axis: Axis
    batch_axis: Axis
    implementation: str
    op: Literal["dispatch_experts"] = "dispatch_experts"


@dataclass(frozen=True, slots=True)
class WrapFsdp:
    """Shard `modules` as one FSDP2 group over `axes` (one axis, or replicate and shard for HSDP).

    `gradient_divisor` replaces FSDP2's own (the group's size) where given.
    """

    modules: tuple[str, ...]
    axes: tuple[Axis, ...]
    reshard_after_forward: bool
    mixed_precision: bool = False
    cpu_offload: bool = False
    gradient_divisor: int | None = None
    op: Literal["wrap_fsdp"] = "wrap_fsdp"


@dataclass(frozen=True, slots=True)
class SplitStages:
    """Keep layers `[start, end)` of `layers` on each stage of the `pp` axis, in rank order."""

    layers: str
    ranges: tuple[tuple[int, int], ...]
    op: Literal["split_stages"] = "split_stages"


@dataclass(frozen=True, slots=True)
class CustomStyle:
    """Hand `target` (a parameter, or a module to hook) to a registered style class that planc doesn't know inside."""

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
