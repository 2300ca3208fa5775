"""Done once by the server that the ranks are forked from: imports whatever is slow to import."""

from contextlib import suppress
from importlib import import_module

import transformers.distributed.tensor_parallel
import transformers.models.auto.modeling_auto  # noqa: F401

import planc.model.building.builder
import planc.program.lower
import planc.runtime.pretrained  # noqa: F401
from planc.check.registry import all_rules
from planc.runtime.interpreter.application import load_handlers

all_rules()
load_handlers()
for name in ("transformers.trainer", "trl.trainer.sft_trainer", "planc.runtime.training"):
    with suppress(ImportError):  # what jobs train with, where it is installed
        import_module(name)
