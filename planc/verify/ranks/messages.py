"""Sending from one rank thread to another, which torch's threaded process group (2.13.0) can't."""

import queue
import sys
from collections import defaultdict
from typing import Any, ClassVar

from torch import Tensor
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup, ret_work

from planc.verify.ranks.waiting import Waiting

_POLL_SECONDS = 0.05
# The group's name, the sender's and the receiver's rank in it, the tag.
_Address = tuple[str, int, int, int]


class Messages:
    """What was sent and not received yet."""

    _boxes: ClassVar[defaultdict[_Address, queue.SimpleQueue[list[Tensor]]]] = defaultdict(queue.SimpleQueue)

    @classmethod
    def install(cls) -> None:
        """Let threaded process groups send and receive."""
        group: Any = ProcessLocalGroup
        group.send, group.recv = cls._send, cls._receive

    @classmethod
    def forget(cls) -> None:
        """Drop what nobody received."""
        cls._boxes.clear()

    @staticmethod
    def _send(group: Any, tensors: list[Tensor], to: int, tag: int = 0) -> Any:
        """Never waits: the receiver gets copies."""
        Messages._boxes[group.pg_name, group.rank(), to, tag].put([tensor.detach().clone() for tensor in tensors])
        return ret_work(tensors)  # type: ignore[no-untyped-call]

    @staticmethod
    def _receive(group: Any, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        box = Messages._boxes[group.pg_name, source, group.rank(), tag]
        with Waiting.counted():
            while True:
                try:
                    sent = box.get(timeout=_POLL_SECONDS)
                    break
                except queue.Empty:
                    if ProcessLocalGroup._terminate.is_set():
                        sys.exit("released, as from a collective")
        for own, tensor in zip(tensors, sent, strict=True):
            own.detach().copy_(tensor)
        return ret_work(tensors)  # type: ignore[no-untyped-call]
