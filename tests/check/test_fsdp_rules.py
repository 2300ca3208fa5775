"""FSDP rules: check refuses exactly what can't be compiled."""

from itertools import product

import pytest

from planc.check.rule import CheckContext
from planc.program.errors import ProgramError
from planc.program.lower import lower
from planc.syntax.matching import generic_name
from tests.check.support import codes, context, manifest, report

SIZES = ({"fsdp_size": 4}, {"fsdp_size": 4, "ep_size": 4}, {"dp_replicate_size": 2})
STYLES = ("free_full_weight", "keep_full_weight")


def compiles(checked: CheckContext) -> bool:
    try:
        lower(checked.plan, checked.resolved, checked.manifest)
    except ProgramError:
        return False
    return True


@pytest.mark.parametrize("model_type", ["llama", "gemma2", "qwen3_moe"])
def test_every_module_under_every_style(model_type: str) -> None:
    """One rule, and two with the outer module under each style: a finding of error severity, or a program."""
    facts = manifest(model_type, {"num_hidden_layers": 2})
    names = sorted({generic_name(name) for name in facts.modules if name})
    seen = set()
    for sizes, name, style in product(SIZES, names, STYLES):
        if "ep_size" in sizes and model_type != "qwen3_moe":
            continue
        outer = name.rpartition(".")[0]
        for more in ({}, *({outer: other} for other in STYLES if outer)):
            checked = context(facts, {**sizes, "fsdp_plan": {**more, name: style}})
            found = codes(report(checked), "error")
            assert (not found) == compiles(checked), (sizes, name, style, more, found)
            seen.update(found)
    assert {"PL109", "PL115"} <= seen
