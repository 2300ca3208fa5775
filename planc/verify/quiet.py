"""Silence for plans that fail on purpose."""

import logging
import warnings


class quiet:  # noqa: N801 (used as a context manager, like those of contextlib)
    """Silences what torch and transformers log about plans that fail: that they do is the finding."""

    _LOGGERS = ("torch._subclasses.fake_tensor", "torch.distributed.tensor._redistribute", "transformers")

    def __enter__(self) -> None:
        self._levels = [(logger, logger.level) for logger in map(logging.getLogger, self._LOGGERS)]
        for logger, _ in self._levels:
            logger.setLevel(logging.CRITICAL)
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *_: object) -> None:
        self._warnings.__exit__(None, None, None)
        for logger, level in self._levels:
            logger.setLevel(level)
