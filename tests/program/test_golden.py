"""What the model plans of well-known models compile to, reviewed as text. `PLANC_UPDATE=1` writes the files anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

from planc.layouts.layout import Layout
from planc.model.sources import load_manifest
from planc.program.lower import lower
from planc.program.program import Program
from planc.resolve.resolver import resolve
from planc.syntax.plan import Plan

HERE = Path(__file__).parent / "golden"
CASES = {
    "qwen3-30b-a3b.tp2": ("qwen3-30b-a3b", Layout(tp_size=2)),
    "qwen3-30b-a3b.tp2-fsdp4-ep4": ("qwen3-30b-a3b", Layout(tp_size=2, fsdp_size=4, ep_size=4)),
    "deepseek-v3.tp8": ("deepseek-v3", Layout(tp_size=8)),
    "gpt-oss-20b.tp4-ep4": ("gpt-oss-20b", Layout(tp_size=4, ep_size=4)),
    "phi-4.tp2": ("phi-4", Layout(tp_size=2)),
    "llama-3.1-8b.tp2-pp2": ("llama-3.1-8b", Layout(tp_size=2, pp_size=2)),
    "qwen3-0.6b.dp2-fsdp2": ("qwen3-0.6b", Layout(dp_replicate_size=2, fsdp_size=2)),
}


@pytest.mark.parametrize(("model", "layout"), CASES.values(), ids=CASES)
def test_compiles_to(
    model: str, layout: Layout, request: pytest.FixtureRequest, golden: Callable[[Path, str], None]
) -> None:
    manifest = load_manifest(model)
    program = lower(Plan(), resolve(Plan(), manifest, layout), manifest)
    golden(HERE / f"{request.node.callspec.id}.json", program.to_json().decode())
    assert Program.load(HERE / f"{request.node.callspec.id}.json") == program
