"""Manifests of others are read once, and then nothing fails; `python -m benchmarks.fuzz manifests` tries more."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz.judging import check_file
from benchmarks.fuzz.manifests import cases
from benchmarks.fuzz.odd import replaced
from planc.model import bundled
from planc.model.errors import ModelError
from planc.model.sources import load_manifest

SAMPLE = 25
FLOW = ("flows", 0)
WRONG: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "values that are no list": ((*FLOW, "values"), {"a": 1}),
    "a shape that isn't there": ((*FLOW, "values", 0), 10**6),
    "an id that nothing made": ((*FLOW, "outputs"), [10**6]),
    "keywords that are no mapping": ((*FLOW, "operations", 3), ["linear", 0, [0], [], 1]),
    "a change in place of nothing": ((*FLOW, "operations", 3), ["add", 0, [1], [], {"in_place": [1]}]),
    "a number off a dim that isn't there": ((*FLOW, "operations", 3), ["view", 0, [1], [["n", ["dim", 0, 99]]], {}]),
    "an operator that isn't one": ((*FLOW, "operations", 3), ["view", 0, [1], [["n", ["^", ["dim", 0, 0], 1]]], {}]),
    "a flow that is no mapping": (("flows",), [[]]),
}


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    return json.dumps(replaced(json.loads(bundled.manifest_path("qwen3-0.6b").read_bytes()), path, value)).encode()


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_flow_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(changed(*WRONG[kind]))
    with pytest.raises(ModelError, match="is not a manifest"):
        load_manifest(str(path))


def test_a_sample_of_all(tmp_path: Path) -> None:
    for title, content in random.Random(2).sample(list(cases()), SAMPLE):
        outcome = check_file(content, tmp_path, 30)
        assert not outcome.fault, title
