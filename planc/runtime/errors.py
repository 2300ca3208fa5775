"""What stops a run. The message is for people; a rank that meets one tells all the others before it ends."""

UNREADABLE = 2
LOST_RANK = 1


class RunError(Exception):
    """A run can't go on: `status` is the exit status of every rank (1: a rank was lost, 2: unusable input)."""

    def __init__(self, message: str, status: int = UNREADABLE) -> None:
        super().__init__(message)
        self.status = status


class ApplicationError(RunError):
    """A program names what this model doesn't have, or asks for what this runtime can't do."""


class CheckpointError(RunError):
    """A checkpoint folder lacks a file or a tensor, or holds one that is damaged or of another shape."""
