"""Configs wrong in one field end in one message that names it; `python -m benchmarks.fuzz configs` tries all."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz.configs import cases, small
from benchmarks.fuzz.judging import check_file
from planc.model import bundled
from planc.model.errors import ModelError
from planc.model.source import read_json
from planc.model.sources import load_manifest

SAMPLE = 8
WRONG: dict[str, tuple[str, Any]] = {
    "a number of architectures": ("architectures", 7),
    "no architectures": ("architectures", True),
    "half an architecture": ("architectures", 0.5),
    "a base class without modules": ("architectures", ["Qwen3MoePreTrainedModel"]),
    "more experts than a machine counts": ("num_experts_per_tok", 2**63),
    "far more experts": ("num_experts_per_tok", 10**30),
    "half a character": ("hidden_act", "\ud800"),
    "half a character in a key": ("\ud800", 1),
    "labels without end": ("num_labels", 10**18),
    "layers without end": ("depths", [2, 10**6]),
    "a key that is too long": ("base_model_tp_plan", {"9" * 5_000: "9" * 5_000}),
    "keys and styles that are no text": ("base_model_tp_plan", {"model.layers.*": None}),
    "a list for a plan": ("base_model_tp_plan", [[]]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_field_is_named(kind: str, tmp_path: Path) -> None:
    field, value = WRONG[kind]
    config = small(read_json(bundled.config_path("qwen3-30b-a3b"))) | {field: value}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError) as raised:
        load_manifest(str(path), cache=False)
    assert field.encode(errors="backslashreplace").decode() in raised.value.message


def test_huge_values_are_no_failure(tmp_path: Path) -> None:
    config = small(read_json(bundled.config_path("qwen3-30b-a3b"))) | {"max_position_embeddings": 10**30}
    assert not check_file(json.dumps(config).encode(), tmp_path, 60).fault


def test_a_sample_of_all(tmp_path: Path) -> None:
    for title, content in random.Random(1).sample(list(cases()), SAMPLE):
        outcome = check_file(content, tmp_path, 60)
        assert not outcome.fault, title
