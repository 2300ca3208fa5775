"""What `planc explain KEY` says of experts that tokens are dispatched to, word for word."""

from collections.abc import Callable

import pytest

from planc.check.dispatch import Cost, Routing, costs
from planc.layouts.layout import Layout
from tests.cli.conftest import MODEL, Result

Planc = Callable[..., Result]
KEY = "model.layers.*.mlp.experts"
AUTO = """\
tokens of model.layers.*.mlp.experts: 32 of 128 experts on a rank, 8 for each token, ep_implementation: auto
  `auto` in training is all_to_all: each route is computed once, where all_reduce takes every rank through the whole \
batch
  `auto` without gradients is all_reduce: the 4 ranks hold one batch, no token moves, and the host reads no size, so \
that a CUDA graph can hold it
  the 4 ranks of a TP group share T tokens: rank r sends ceil(T/4) of them, from r * ceil(T/4) on; the last ranks send \
fewer or none, as for T = 1
"""


def told(result: Result) -> str:
    assert result.status == 0
    return result.out[result.out.index("tokens of") :]


def test_what_auto_chooses(planc: Planc) -> None:
    text = told(planc("explain", KEY, MODEL, "--tp-size", 4, "--ep-size", 4))
    assert text.startswith(AUTO)
    rows = {
        line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if "  1 " in line or "  3 " in line
    }
    assert rows == {
        # 8 routes of 4,096 bytes, a quarter of them this rank's, three quarters of these away and back; 1 row gathered.
        "all_to_all": "3 all-to-alls over ep (counts, which the host reads; rows; results), 1 all-gather over tp "
        "15.4 kB 2 (8) 8.2 kB (32.8 kB)",
        "all_reduce": "1 all-reduce over ep 6.1 kB 8 32.8 kB",
        "deepgemm_megamoe": "1 kernel, which exchanges tokens, 1 all-gather over ep ? ? ?",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((MODEL, "--fsdp-size", 8, "--ep-size", 8), "each rank sends all tokens of its own batch"),
        ((MODEL, "--fsdp-size", 8, "--ep-size", 8), "an expert group holds 8 batches"),
        ((MODEL, "--tp-size", 2, "--fsdp-size", 4, "--ep-size", 8), "rank r sends ceil(T/2) of them"),
        ((MODEL, "--tp-size", 4, "--ep-size", 4, "--ep-implementation", "all_reduce"), "each rank takes all T tokens"),
        ((MODEL, "--tp-size", 4, "--ep-size", 4, "--ep-implementation", "deepgemm_megamoe"), "rank r sends ceil(T/4)"),
    ],
)
def test_which_tokens_a_rank_sends(words: tuple[object, ...], says: str, planc: Planc) -> None:
    assert says in told(planc("explain", KEY, *words))


@pytest.mark.parametrize("key", ["model.layers.*.mlp.gate", "model.layers.*.self_attn.q_proj"])
def test_other_modules_send_no_tokens(key: str, planc: Planc) -> None:
    assert "tokens of" not in planc("explain", key, MODEL, "--tp-size", 4, "--ep-size", 4).out
    assert "tokens of" not in planc("explain", KEY, MODEL, "--tp-size", 4).out


def test_a_rank_can_not_get_more_routes_of_a_token_than_it_has_experts() -> None:
    routing = Routing(experts=16, top_k=8, features=4, element=2)
    found: Cost = costs(Layout(fsdp_size=8, ep_size=8), routing)["all_to_all"]
    assert (found.rows, found.most_rows) == (8, 8 * 2)
