"""Reports to render: made by hand, with what plans and models throw at a renderer."""

import pytest

from planc.diagnostics.codes import CODES, Code
from planc.diagnostics.diagnostic import Coverage, Diagnostic, Edit, Fix, Label, Replicated, Report, Severity
from planc.diagnostics.span import COMMAND_LINE, Span

PLAN = "plans/qwen3.yaml"
TEXT = """\
model: Qwen/Qwen3-30B-A3B
tp_size: 8
tp_plan:
  model.layers.*.self_attn.q_proj: colwise
  model.layers.*.self_attn.k_proj: colwise
  lm_head: colwise_gather
ep_plan: {model.layers.*.mlp.gate: ep_router}
"""
BASE = "plans/base.yaml"
MODEL_PLAN = "<Qwen3MoeForCausalLM.tp_plan>"
SOURCES = {
    PLAN: TEXT,
    BASE: "tp_size: 4\n",
    MODEL_PLAN: "model.layers.*.self_attn.o_proj: rowwise\n",
    COMMAND_LINE: "planc check --ep-size 3",
}


def span(file: str, token: str) -> Span:
    """The first `token` in `file`."""
    before, _, _ = SOURCES[file].partition(token)
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Span(file, line, column, line, column + len(token))


@pytest.fixture(autouse=True)
def codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests don't depend on which rules have been imported."""
    for code in list(CODES):
        monkeypatch.delitem(CODES, code)
    documentation = "A KV head would be cut.\n\nUse a *smaller* tp_size."
    monkeypatch.setitem(CODES, "PL301", Code("PL301", "kv-heads-not-divisible", Severity.ERROR, documentation))


@pytest.fixture
def broken() -> Report:
    """One finding of each kind: several files, virtual sources, fixes, no place at all."""
    heads = Diagnostic(
        "PL301",
        Severity.ERROR,
        "`k_proj` splits 4 KV heads over tp_size=8",
        span(PLAN, "model.layers.*.self_attn.k_proj"),
        "48 modules, 512 features = 4 heads x 128; each rank would get 64, half a head",
        (
            Label(span(PLAN, "8\n"), "from here"),
            Label(span(BASE, "4"), "hides this one"),
            Label(span(MODEL_PLAN, "rowwise"), "reads it"),
        ),
        "model.layers.*.self_attn.k_proj",
        tuple(f"model.layers.{i}.self_attn.k_proj" for i in range(5)),
        48,
        help=("tp_size of 1, 2 or 4 is legal", "or gather it: `colwise_gather_output`"),
    )
    style = Diagnostic(
        "PL103",
        Severity.ERROR,
        "unknown style `colwise_gather`",
        span(PLAN, "colwise_gather"),
        key="lm_head",
        targets=("lm_head",),
        target_count=1,
        notes=("the rest of the plan is still checked",),
        fix=Fix("use the nearest style", (Edit(span(PLAN, "colwise_gather"), "colwise_gather_output"),), safe=True),
    )
    sizes = Diagnostic("PL203", Severity.ERROR, "ep_size=3 is not a multiple of tp_size=8", span(COMMAND_LINE, "3"))
    partial = Diagnostic(
        "PL401",
        Severity.UNKNOWN,
        "what flows out of `mlp.gate` is not known",
        span(PLAN, "model.layers.*.mlp.gate"),
        "100 % of it, or: nothing",
        fix=Fix("drop the rule", (Edit(span(PLAN, "model.layers.*.mlp.gate: ep_router"), ""),)),
    )
    whole = Diagnostic("PL501", Severity.WARNING, "99 % of the parameters stay whole, 60.1 GB on every rank")
    note = Diagnostic("PL104", Severity.NOTE, "this config builds no dense MLP", span(MODEL_PLAN, "model.layers"))
    return Report(
        (heads, style, sizes, partial, whole, note),
        SOURCES,
        PLAN,
        "Qwen/Qwen3-30B-A3B",
        "Qwen3MoeForCausalLM",
        {"tp_size": 8, "ep_size": 3},
        Coverage(30_532_122_624, 1_000, 61_064_245_248, 61_000_000_000, 7_633_030_656, (Replicated("lm_head", 9),)),
    )


@pytest.fixture
def fine() -> Report:
    return Report((), {}, "plans/fine.yaml", "Qwen/Qwen3-8B", "Qwen3ForCausalLM")
