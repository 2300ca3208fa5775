"""Manifests that are wrong in one place, the recorded dataflow included: a message, never an exception."""

import json
import random
from collections.abc import Iterator
from typing import Any

from benchmarks.fuzz.odd import ODD, places, replaced
from planc.model import bundled

MODELS = ("qwen3-0.6b", "gpt-oss-20b", "deepseek-v3")
# Of the thousands of places in a dataflow, so many a model.
PLACES = 3_000
# What an id, an index or a dim may be in place of another.
NEAR: tuple[Any, ...] = (-1, 0, 1, 2, 3, 10**6, "v", ["v", 0], ["v", 10**6], ["n", ["dim", 0, 99]], ["n", 3], ["s"])


def cases() -> Iterator[tuple[str, bytes]]:
    """Places of each of the MODELS (all but those of a long dataflow), with an odd value: title and file content."""
    for name in MODELS:
        manifest = json.loads(bundled.manifest_path(name).read_bytes())
        drawn = random.Random(name)
        found = list(places(manifest))
        for path in drawn.sample(found, min(PLACES, len(found))):
            value = drawn.choice((*ODD, *NEAR))
            yield (
                f"{name}: {'.'.join(map(str, path))[:200]} = {str(value)[:40]!r}",
                _bytes(replaced(manifest, path, value)),
            )


def _bytes(manifest: Any) -> bytes:
    return json.dumps(manifest).encode()
