"""What goes wrong with a model, as one message."""


class ModelError(Exception):
    """A model, config or manifest that can't be used. `message` says what is wrong, `help` what would be right.

    The command line prints it as one diagnostic; it never needs a traceback.
    """

    def __init__(self, message: str, help: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
