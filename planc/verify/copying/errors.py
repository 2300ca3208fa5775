"""What can go wrong on the way to a small copy."""


class CopyError(Exception):
    """No small copy could be made; the message says why."""
