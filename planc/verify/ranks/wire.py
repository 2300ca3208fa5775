"""Observations as bytes: safetensors, with what isn't a tensor in the header."""

import json
import struct
from dataclasses import fields

from safetensors.torch import load, save

from planc.verify.observing import Observation
from planc.verify.ranks.outcome import InPhaseError

_PARTS = tuple(field.name for field in fields(Observation) if field.name != "loss")


def encode(message: Observation | InPhaseError) -> bytes:
    """The bytes of a message; an error becomes its phase and its text."""
    if isinstance(message, InPhaseError):
        return json.dumps({"phase": message.phase, "error": message.error, "lost": message.lost}).encode()
    tensors = {
        f"{part}/{name}": tensor.contiguous() for part in _PARTS for name, tensor in getattr(message, part).items()
    }
    content: bytes = save(tensors, {"loss": message.loss.hex()})
    return content


def decode(content: bytes) -> Observation | InPhaseError:
    """The message; a rank that sent none was killed."""
    if not content:
        return InPhaseError("", "the process of the rank was killed")
    if content.startswith(b"{"):
        return InPhaseError(**json.loads(content))
    (length,) = struct.unpack("<Q", content[:8])
    loss = float.fromhex(json.loads(content[8 : 8 + length])["__metadata__"]["loss"])
    parts: dict[str, dict[str, object]] = {part: {} for part in _PARTS}
    for name, tensor in load(content).items():
        part, _, own = name.partition("/")
        parts[part][own] = tensor
    return Observation(loss=loss, **parts)  # type: ignore[arg-type]
