"""Tensors made of nothing: of the whole's shape, or of a shard's where the model reads it off one."""

from planc.flow.problems import CantFollowError
from planc.flow.step import Step, operation, sizes
from planc.flow.types import WHOLE, Fill, Type


@operation("zeros", "ones", "empty", "full", "rand", "randn")
def made(step: Step) -> Type:
    """`zeros(sizes)`."""
    return _constant(step, step.op.arguments[:1] if step.op.name == "full" else step.op.arguments)


@operation("new_zeros", "new_ones", "new_empty", "new_full")
def made_like(step: Step) -> Type:
    """`x.new_zeros(sizes)`."""
    return _constant(step, step.op.arguments[1:2] if step.op.name == "new_full" else step.op.arguments[1:])


def _constant(step: Step, arguments: object) -> Type:
    given = sizes(list(arguments)) if isinstance(arguments, list | tuple) and arguments else None
    if given is None:
        given = step.op.keywords.get("size")
    if given is None:
        raise CantFollowError("its sizes")
    shapes = tuple(tuple(step.numbers(given, rank)) for rank in range(step.ranks))
    return WHOLE if all(shape == step.output_shape for shape in shapes) else Fill(shapes)


@operation("zeros_like", "ones_like", "empty_like", "full_like")
def like(step: Step) -> Type:
    """`zeros_like(x)`."""
    shapes = tuple(step.local_shape(step.inputs[0], rank) for rank in range(step.ranks))
    return WHOLE if all(shape == step.output_shape for shape in shapes) else Fill(shapes)


@operation("arange", "eye", "linspace", "tensor")
def counted(step: Step) -> Type:
    """Numbers in order: another extent is another value."""
    for rank in range(step.ranks):
        for argument in step.op.arguments:
            is_number = isinstance(argument, list) and argument[:1] == ["n"]
            if is_number and step.number(argument, rank) != step.number(argument, None):
                raise CantFollowError("numbers counted over a shard")
    return WHOLE
