"""Silence for plans that fail on purpose."""

import logging
import warnings

from torch.distributed.c10d_logger import _c10d_logger as c10d_logger
from transformers.utils import logging as transformers_logging


class quiet:  # noqa: N801 (used as a context manager, like those of contextlib)
    """Silences what torch and transformers log about plans that fail: that they do is the finding."""

    _LOGGERS = (
        "torch._subclasses.fake_tensor", "torch.distributed.tensor._redistribute", "transformers", c10d_logger.name,
    )  # fmt: skip

    def __enter__(self) -> None:
        self._levels = [(logger, logger.level) for logger in map(logging.getLogger, self._LOGGERS)]
        for logger, _ in self._levels:
            logger.setLevel(logging.CRITICAL)
        self._bars = transformers_logging.is_progress_bar_enabled()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        transformers_logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        if self._bars:
            transformers_logging.enable_progress_bar()
        self._warnings.__exit__(None, None, None)
        for logger, level in self._levels:
            logger.setLevel(level)
