"""What operations make of the layout types of their inputs, one family a file."""


def load() -> None:
    """Register the rules of every family."""
    from planc.flow.operations import (  # noqa: F401
        attention,
        creation,
        elementwise,
        joining,
        products,
        reductions,
        slicing,
        views,
    )
