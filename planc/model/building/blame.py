"""Which field of a config makes a model impossible to build."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from planc.model.errors import ModelError

# A failing build mostly fails at once; where it doesn't, the message goes without a field.
_SECONDS = 2.0
_KEPT = ("model_type",)


def with_field(error: Exception, fields: Mapping[str, Any], build: Callable[[Mapping[str, Any]], object]) -> ModelError:
    """`error` as a ModelError that names the field at fault: the one without which `build(fields)` succeeds.

    `build` may raise anything. Where no single field is at fault, or none is found in two seconds, none is named.
    """
    known = error if isinstance(error, ModelError) else ModelError(f"the model can't be built: {_text(error)}")
    if any(f"`{name}`" in known.message or f"'{name}'" in known.message for name in fields):
        return known
    field = _field_at_fault(fields, build)
    if field is None:
        return known
    return ModelError(f"{known.message} (its config's `{field}` is at fault: without it the model builds)", known.help)


def _field_at_fault(fields: Mapping[str, Any], build: Callable[[Mapping[str, Any]], object]) -> str | None:
    end = time.monotonic() + _SECONDS
    for name in sorted(fields, key=_is_plain):
        if name in _KEPT:
            continue
        if time.monotonic() > end:
            return None
        try:
            build({key: value for key, value in fields.items() if key != name})
        except Exception:
            continue
        return name
    return None


def _is_plain(name: str) -> bool:
    return name not in ("architectures", "dtype", "torch_dtype", "rope_parameters", "rope_scaling")


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
