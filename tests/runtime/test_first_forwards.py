"""What the first forwards of a sharded model refuse, on real ranks, and what they let pass."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import planc
from planc.runtime.agreement import Stopped
from planc.runtime.errors import RunError
from planc.runtime.first_forwards import VARIABLE
from planc.runtime.session import Session
from tests.runtime.ranks import start_ranks
from tests.runtime.test_agreement import ends

pytestmark = pytest.mark.ranks
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 96}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of small models for two layouts: GPT-NeoX drops out of what every rank holds whole."""
    made = tmp_path_factory.mktemp("programs")
    config = transformers.AutoConfig.for_model("gpt_neox", **SIZES, hidden_dropout=0.1, attention_dropout=0.0)
    config.save_pretrained(made)
    for name, sizes in {"tp2": {"tp_size": 2}, "fsdp2": {"fsdp_size": 2}}.items():
        planc.compile(str(made), sizes).save(made / f"{name}.json")
    return made


def sharded(folder: str, layout: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    return planc.apply(model, Path(folder) / f"{layout}.json")


def trial(folder: str, layout: str, use: Callable[[Any, int], Any]) -> tuple[str, int] | None:
    """What a rank is told when `use(model, rank)` is stopped or refused, and its status; None where it runs."""
    model = sharded(folder, layout)
    session = Session.current
    assert session is not None
    try:
        use(model, session.place.rank)
    except Stopped as stopped:
        return str(stopped), stopped.status
    except RunError as refused:
        session.close()
        return str(refused), refused.status
    session.close()
    return None


def ids(seed: int = 1, length: int = 7) -> Any:
    return torch.randint(0, 96, (2, length), generator=torch.Generator().manual_seed(seed))


def equal(model: Any, rank: int) -> None:
    model.train()
    for step in range(5):
        batch = ids(step)
        model(input_ids=batch, labels=batch, attention_mask=torch.ones_like(batch)).loss.backward()


def other_batches(model: Any, rank: int) -> None:
    model.eval()(ids(rank))


def other_lengths(model: Any, rank: int) -> None:
    model.eval()(input_ids=ids(1, 7 + rank))


def other_labels(model: Any, rank: int) -> None:
    model.eval()(input_ids=ids(), labels=ids() if rank else None)


def other_embeddings(model: Any, rank: int) -> None:
    model.eval()(inputs_embeds=torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(rank)))


def nearly_equal_embeddings(model: Any, rank: int) -> None:
    made = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))
    model.eval()(inputs_embeds=made + 1e-7 * rank)


def other_seeds(model: Any, rank: int) -> None:
    torch.manual_seed(rank)
    model.train()(ids())


def other_seeds_in_inference(model: Any, rank: int) -> None:
    torch.manual_seed(rank)
    with torch.no_grad():
        model.eval()(ids())


def later_batches_differ(model: Any, rank: int) -> None:
    """In the third forward; the fourth isn't looked at any more, and the model's own forward is back."""
    model.eval()
    model(ids())
    model(ids())
    model(ids(rank))


def wrapped_meanwhile(model: Any, rank: int) -> None:
    """As accelerate puts autocast around a forward: those after the third aren't looked at either."""
    inner = model.eval().forward
    model.forward = lambda *arguments: inner(*arguments)
    for _ in range(3):
        model(ids())
    with torch.no_grad():
        model(ids(rank))


def generates(model: Any, rank: int) -> None:
    before = type(model).forward
    made = model.eval().generate(ids(), max_new_tokens=5, do_sample=False)
    assert made.shape == (2, 12)
    assert model.forward.__func__ is before


class Adapter(nn.Module):
    """A low-rank adapter as peft puts it in a projection's place."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Linear(base.in_features, 2, bias=False)
        self.lora_B = nn.Linear(2, base.out_features, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.base_layer(hidden) + self.lora_B(self.lora_A(hidden))
        return made


def adapted(model: Any, rank: int) -> None:
    for layer in model.gpt_neox.layers:
        layer.mlp.dense_4h_to_h = Adapter(layer.mlp.dense_4h_to_h)
    # As peft calls the model inside: not by `__call__`.
    model.eval().forward(ids())


def replaced(model: Any, rank: int) -> None:
    model.embed_out = nn.Linear(32, 96, bias=False)
    model.eval()(ids())


def wrapped_and_frozen(model: Any, rank: int) -> None:
    """None of it is another parameter."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for number, layer in enumerate(model.gpt_neox.layers):
        model.gpt_neox.layers[number] = checkpoint_wrapper(layer)
    for parameter in model.gpt_neox.embed_in.parameters():
        parameter.requires_grad_(False)
    wrapper = nn.Sequential(model)
    wrapper.add_module("head", nn.Linear(96, 1))
    torch.manual_seed(0)
    model.train()(ids()).logits.sum().backward()


def resized(model: Any, rank: int) -> None:
    assert model.resize_token_embeddings() is not None
    model.resize_token_embeddings(128)


def resized_inside(model: Any, rank: int) -> None:
    model.gpt_neox.resize_token_embeddings(128)


def added(model: Any, rank: int) -> None:
    model.add_adapter(object())


@pytest.mark.parametrize(
    ("layout", "use", "says"),
    [
        ("tp2", equal, None),
        (
            "tp2",
            other_batches,
            "ranks 0 and 1 of one tensor-parallel group were given a different `input_ids`, both of",
        ),
        ("tp2", other_lengths, "a different `input_ids`, of shapes [2, 7] and [2, 8]"),
        ("tp2", other_labels, "a different `labels`, of shapes nothing and [2, 7]"),
        ("tp2", other_embeddings, "a different `inputs_embeds`, both of shape [2, 7, 32]"),
        ("tp2", nearly_equal_embeddings, None),
        (
            "tp2",
            other_seeds,
            "trains with dropout, and ranks 0 and 1 of one tensor-parallel group would draw different",
        ),
        ("tp2", other_seeds_in_inference, None),
        ("tp2", later_batches_differ, "a different `input_ids`"),
        ("tp2", wrapped_meanwhile, None),
        ("tp2", generates, None),
        ("tp2", adapted, "`gpt_neox.layers.0.mlp.dense_4h_to_h.base_layer.weight`"),
        ("tp2", replaced, "`embed_out.weight` came after the model was sharded"),
        ("tp2", wrapped_and_frozen, None),
        ("tp2", resized, "the model is sharded, and `resize_token_embeddings` would change its parameters: resize"),
        ("tp2", resized_inside, "`resize_token_embeddings` would change its parameters"),
        ("tp2", added, "`add_adapter` would change its parameters: add adapters before `planc.apply`"),
        ("fsdp2", other_batches, None),
        ("fsdp2", other_seeds, None),
        ("fsdp2", adapted, "came after the model was sharded"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:12],
)
def test_first_forwards(layout: str, use: Any, says: str | None, folder: Path) -> None:
    outcomes = start_ranks(2, trial, str(folder), layout, use, init=False, timeout=60)
    # A rank that waits elsewhere is ended by its watchdog, which says why.
    ((message, status),) = ends(outcomes)
    assert (message, status) == ("nothing", 0) if says is None else says in message and status == 2


def test_it_can_be_switched_off(folder: Path) -> None:
    off = {rank: {VARIABLE: "0"} for rank in range(2)}
    outcomes = start_ranks(2, trial, str(folder), "tp2", other_batches, init=False, timeout=60, environment=off)
    assert [(o.failure, o.result) for o in outcomes] == [(None, None)] * 2
