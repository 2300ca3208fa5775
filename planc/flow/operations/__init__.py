"""What operations make of the layout types of their inputs, one family a file."""


def load() -> None:
    """Register the rules of every family."""
    from planc.flow.operations import attention, creation, elementwise, indexing, products, reductions, views  # noqa: F401
