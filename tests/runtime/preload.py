"""Imported once by the server that the ranks are forked from: whatever is slow to import."""

from contextlib import suppress
from importlib import import_module

import transformers.distributed.tensor_parallel
import transformers.models.auto.modeling_auto  # noqa: F401

import planc.model.building.builder
import planc.program.lower
import planc.runtime.interpreter  # noqa: F401

for name in ("transformers.trainer", "trl.trainer.sft_trainer"):
    with suppress(ImportError):  # what jobs train with, where it is installed
        import_module(name)
