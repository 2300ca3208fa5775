"""What goes wrong with a program, as one message with all its faults."""


class ProgramError(Exception):
    """A plan that can't be compiled, or a program that is damaged or made for another model.

    `message` is one sentence, `faults` lists each thing that is wrong. Never needs a traceback.
    """

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *(f"  {fault}" for fault in faults))))
        self.message = message
        self.faults = faults
