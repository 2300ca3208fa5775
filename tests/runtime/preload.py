"""Imported once by the server that the ranks are forked from: whatever is slow to import."""

import transformers.models.auto.modeling_auto
import transformers.distributed.tensor_parallel  # noqa: F401
