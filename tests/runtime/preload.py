"""Imported once by the server that the ranks are forked from: whatever is slow to import."""

import transformers.distributed.tensor_parallel
import transformers.models.auto.modeling_auto  # noqa: F401

import planc.model.building.builder
import planc.program.lower
import planc.runtime.interpreter  # noqa: F401
