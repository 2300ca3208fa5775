"""What flows into and out of a module changes its placement, and so do the gradients that come back."""

from torch import Tensor

from planc.ir.operations import DivideInput, SumOutputGradient, TransformInput, TransformOutput
from planc.runtime.collectives import Change, SumGradientOfLastFeatures, change
from planc.runtime.errors import ApplicationError
from planc.runtime.interpreter.application import Application, handles


@handles(TransformInput)
def transform_input(operation: TransformInput, application: Application) -> None:
    """Change one input on its way in, whether it comes by position or by keyword."""
    if (made := _change(operation, application)) is not None:
        application.around(operation.module).inputs.append((operation.argument, made))


@handles(TransformOutput)
def transform_output(operation: TransformOutput, application: Application) -> None:
    """Change the output on its way out."""
    if (made := _change(operation, application)) is not None:
        application.around(operation.module).outputs.append(made)


def _change(operation: TransformInput | TransformOutput, application: Application) -> Change | None:
    group = application.meshes.group(operation.axis)
    handed_over = isinstance(operation, TransformOutput)
    try:
        return change(operation.source, operation.target, operation.gradient, group, operation.size, handed_over)
    except ApplicationError as error:
        raise ApplicationError(f"{operation.op} of `{operation.module}`: {error}") from None


@handles(DivideInput)
def divide_input(operation: DivideInput, application: Application) -> None:
    """Divide the first input by the number of ranks whose outputs will be summed."""
    size = application.meshes.size(operation.axis)
    application.around(operation.module).inputs.append((0, lambda tensor: tensor / size))


@handles(SumOutputGradient)
def sum_output_gradient(operation: SumOutputGradient, application: Application) -> None:
    """Sum the gradient of the last features of the output; the rest of it is complete on every rank."""
    group = application.meshes.group(operation.axis)

    def mark(output: Tensor) -> Tensor:
        if not output.requires_grad:
            return output
        marked: Tensor = SumGradientOfLastFeatures.apply(  # type: ignore[no-untyped-call]
            output, operation.features, group
        )
        return marked

    application.around(operation.module).outputs.append(mark)
