"""Which rank threads wait for the others."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class Waiting:
    """Remembers which threads wait in a collective or for a message, and for how many each has waited."""

    now: ClassVar[dict[int, int]] = {}
    _entered: ClassVar[Counter[int]] = Counter()

    @classmethod
    @contextmanager
    def counted(cls) -> Iterator[None]:
        """Within, the calling thread waits."""
        thread = threading.get_ident()
        cls._entered[thread] += 1
        cls.now[thread] = cls._entered[thread]
        try:
            yield
        finally:
            cls.now.pop(thread, None)
