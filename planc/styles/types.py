"""A style as a typed function: what it takes a module's input, output and their gradients to be on its axis."""

from dataclasses import dataclass

from planc.layouts.placement import Placement


@dataclass(frozen=True, slots=True)
class StyleType:
    """What a style of `module` says, on the style's axis. None: the style says nothing and changes nothing.

    `input`: the placement that the style takes the incoming value to have; `computes`: the placement in which the
    module itself sees it. `yields`: what the style takes the module's own output to be; `output`: what it hands on.
    `input_gradient`: the placement in which the gradient arrives from inside the module; where that is Partial and
    `input` is Replicate, the style sums it. `arguments` are the positional inputs that `input`, `computes` and
    `input_gradient` speak of.

    `runs_local`: the module computes on the local tensors of its own sharded parameters. `distributed`: it computes
    under DTensor's rules, which keep its meaning whatever it computes. `lookup`: ids of other ranks' rows look up zero.
    `sums_parameter_gradients`: the gradients of the module's own parameters are summed over the axis.
    `sums_output_gradient`: the gradient of some of the output's features is summed (MLA's rotary part).
    `divides_input`: the input is divided by the axis size. `dispatches`: tokens reach the experts of other ranks.
    """

    input: Placement | None = None
    computes: Placement | None = None
    yields: Placement | None = None
    output: Placement | None = None
    input_gradient: Placement | None = None
    arguments: tuple[int, ...] = (0,)
    runs_local: bool = False
    distributed: bool = False
    lookup: bool = False
    sums_parameter_gradients: bool = False
    sums_output_gradient: bool = False
    divides_input: bool = False
    dispatches: bool = False
