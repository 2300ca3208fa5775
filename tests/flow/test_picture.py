"""The typed picture, word for word."""

from planc.flow.picture import explain, show
from tests.check.support import context

PICTURE = """\
(the model)                      -                               R            -> R ~R
model                            -                               R            -> R ~R
  embed_tokens                   embedding_rowwise               R            -> R ~R
  rotary_emb                     -                               R ~R         -> R
    layers.* x36                 -                               R ~R         -> R ~R
      input_layernorm x36        -                               R ~R         -> R ~R
      self_attn x36              -                               R ~R         -> R ~R
        q_proj x36               colwise                         R ~R         -> S(-1) ~S(-1)
        q_norm x36               replicated_with_grad_allreduce  S(-2) ~S(-2) -> S(-2) ~S(-2)
        k_proj x36               colwise                         R ~R         -> S(-1) ~S(-1)
        k_norm x36               replicated_with_grad_allreduce  S(-2) ~S(-2) -> S(-2) ~S(-2)
        v_proj x36               colwise                         R ~R         -> S(-1) ~S(-1)
        o_proj x36               rowwise                         S(-1) ~S(-1) -> R ~R
      post_attention_layernorm x36 -                             R ~R         -> R ~R
"""


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_picture_of_each_kind_of_layer() -> None:
    shown = columns(show(context("qwen3-8b", {"tp_size": 2}).flow))
    assert shown[: len(columns(PICTURE))] == columns(PICTURE)
    assert shown[-4:-2] == [
        ["norm", "-", "R", "~R", "->", "R", "~R"],
        ["lm_head", "colwise_gather_output", "R", "~R", "->", "R", "~R"],
    ]


def test_layers_that_the_plan_treats_apart_stand_apart() -> None:
    plan = {"tp_size": 2, "tp_plan": {"model.layers.[0-3].mlp.{gate,up,down}_proj": "replicate"}}
    shown = columns(show(context("qwen3-8b", plan).flow))
    assert [line[1] for line in shown if line[:1] == ["down_proj"]] == ["x4", "x32"]


def test_explanation_of_a_key() -> None:
    text = explain(context("qwen3-8b", {"tp_size": 2}).flow, ["model.layers.7.self_attn.o_proj"])
    assert text.splitlines() == [
        "model.layers.*.self_attn.o_proj (36 modules): rowwise",
        "  in  S(-1), gradient S(-1), from model.layers.*.self_attn.v_proj, model.layers.*.self_attn.q_norm, "
        "model.layers.*.self_attn.k_norm",
        "      made by model.layers.*.self_attn.q_proj.weight (colwise)",
        "  out R, gradient R, to model.layers.*.self_attn",
    ]
