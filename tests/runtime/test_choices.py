"""The dtype and the implementations that a model is loaded with, against transformers in one process."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

import planc
from planc.model.building.choosing import legal_implementations, put_on
from planc.model.choices import DTYPES, Choices
from planc.model.errors import ModelError
from planc.runtime.errors import RunError
from planc.runtime.pretrained import prepare
from tests.runtime.models import BASE, GROUPS, batch, build, randomise
from tests.runtime.ranks import run_ranks

# Router weights and their bias, a buffer, stay in float32 whatever dtype the rest has.
DOTS = {**BASE, **GROUPS, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
ASKED = [None, "auto", "float32", torch.bfloat16, "half", "float64"]
PLAIN: Any = {"rtol": 0, "atol": 0}


def saved(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """A checkpoint of a small model in `dtype`."""
    model = made(name)
    put_on(model, Choices.of(dtype))
    model.save_pretrained(folder)
    return folder


def made(name: str) -> Any:
    if name != "dots1":
        return build(name)
    model = transformers.Dots1ForCausalLM(transformers.Dots1Config(**DOTS)).float().eval()
    randomise(model)
    return model


def forget_dtype(folder: Path) -> None:
    fields = json.loads((folder / "config.json").read_text())
    del fields["dtype"]
    (folder / "config.json").write_text(json.dumps(fields))


def same(found: nn.Module, expected: nn.Module) -> None:
    """Every tensor of one process has the dtype and the values that transformers gave it."""
    tensors = {**dict(found.named_parameters()), **dict(found.named_buffers())}
    theirs = {**dict(expected.named_parameters()), **dict(expected.named_buffers())}
    assert tensors.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(tensors[name], tensor, **PLAIN, msg=lambda told, name=name: f"{name}: {told}")
    assert str(found.config.dtype) == str(expected.config.dtype)


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("name", ["llama-tied-biased", "dots1", "deepseek_v3"])
def test_a_dtype_as_transformers_loads_it(name: str, asked: Any, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=asked)
    ours = planc.from_pretrained(folder, tp_size=1, dtype=asked)
    same(ours, theirs)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32], ids=str)
def test_a_config_without_dtype_has_that_of_the_checkpoint(stored: torch.dtype, tmp_path: Path) -> None:
    folder = saved("dots1", tmp_path, stored)
    forget_dtype(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    ours = planc.from_pretrained(folder, tp_size=1)
    same(ours, theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_model_in_memory_gets_what_loading_gives(dtype: str, tmp_path: Path) -> None:
    """Parameters stay the same objects, so that ties and optimizers keep theirs."""
    folder = saved("dots1", tmp_path, torch.float32)
    model = AutoModelForCausalLM.from_pretrained(folder)
    before = [id(parameter) for parameter in model.parameters()]
    planc.apply(model, planc.compile(folder, tp_size=1), dtype=dtype)
    same(model, AutoModelForCausalLM.from_pretrained(folder, dtype=dtype))
    assert [id(parameter) for parameter in model.parameters()] == before


@pytest.mark.parametrize(
    "chosen",
    [
        {"attn_implementation": "eager"},
        {"attn_implementation": "flex_attention", "experts_implementation": "batched_mm"},
        {"experts_implementation": "grouped_mm"},
        {"experts_implementation": "deepgemm_megamoe"},
        {"attn_implementation": {"": "eager"}},
        {},
    ],
    ids=str,
)
def test_implementations_as_transformers_takes_them(chosen: dict[str, Any], tmp_path: Path) -> None:
    folder = saved("qwen3_moe", tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(folder, **chosen).config
    ours = planc.from_pretrained(folder, tp_size=1, **chosen).config
    assert ours._attn_implementation == theirs._attn_implementation
    assert ours._experts_implementation == theirs._experts_implementation
    if "deepgemm_megamoe" not in chosen.values():  # which only loading can choose
        model = AutoModelForCausalLM.from_pretrained(folder)
        planc.apply(model, planc.compile(folder, tp_size=1), **chosen)
        assert model.config._attn_implementation == theirs._attn_implementation
        assert model.config._experts_implementation == theirs._experts_implementation


ILLEGAL = [
    ("dtype", "bf16", ("auto", *DTYPES)),
    ("dtype", torch.float8_e4m3fn, ("auto", *DTYPES)),
    ("dtype", 16, ("auto", *DTYPES)),
    ("attn_implementation", "flash", legal_implementations("attn_implementation")),
    ("attn_implementation", {"text_config": "flash"}, legal_implementations("attn_implementation")),
    ("experts_implementation", "grouped", legal_implementations("experts_implementation")),
    ("experts_implementation", 3, legal_implementations("experts_implementation")),
]


@pytest.mark.parametrize(("argument", "value", "legal"), ILLEGAL, ids=str)
def test_what_isnt_legal_is_told_with_what_is(
    argument: str, value: Any, legal: tuple[str, ...], tmp_path: Path
) -> None:
    folder = saved("llama", tmp_path)
    program = planc.compile(folder, tp_size=1)
    told = rf"^{argument} can't be `[^`]*`; legal are {re.escape(', '.join(legal))}$"
    with pytest.raises(RunError, match=told):
        planc.from_pretrained(folder, tp_size=1, **{argument: value})
    with pytest.raises(RunError, match=told):
        planc.apply(build("llama"), program, **{argument: value})
    if argument == "dtype":
        with pytest.raises(ValueError, match=told):
            planc.compile(folder, tp_size=1, dtype=value)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"attn_implementation": "flash_attention_2"}, "flash"),
        ({"experts_implementation": "grouped_mm"}, "does not support setting experts implementation"),
    ],
)
def test_what_a_model_or_a_machine_doesnt_have(chosen: dict[str, str], reason: str, tmp_path: Path) -> None:
    """The class that was asked for is refused; no other one that would build takes its place."""
    folder = saved("llama", tmp_path)
    ((argument, value),) = chosen.items()
    told = rf"(?i)^LlamaForCausalLM can't be loaded with {argument}='{value}': .*{reason}"
    with pytest.raises((ValueError, ImportError)):
        AutoModelForCausalLM.from_pretrained(folder, **chosen)
    with pytest.raises(RunError, match=told):
        planc.from_pretrained(folder, tp_size=1, **chosen)
    with pytest.raises(RunError, match=told):
        planc.apply(build("llama"), planc.compile(folder, tp_size=1), **chosen)


def test_modules_of_ones_own_have_no_implementations() -> None:
    with pytest.raises(ModelError, match=r"Linear is no model of transformers: it has no attn_implementation"):
        put_on(nn.Linear(2, 2), Choices(attn_implementation="sdpa"))


def test_what_a_script_is_given_holds_where_it_asks_for_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    folder = saved("llama", tmp_path)
    for name, value in Choices("float32", attn_implementation="eager").to_environment().items():
        monkeypatch.setenv(name, value)
    model: Any = planc.from_pretrained(folder, tp_size=1, attn_implementation="sdpa")
    assert (model.dtype, model.config._attn_implementation) == (torch.float32, "sdpa")
    assert prepare(str(folder), planc.compile(folder, tp_size=1), None, folder).model.dtype == torch.bfloat16


# --- on ranks ---------------------------------------------------------------------------------------------------------


def gathered(model: nn.Module, ids: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Every parameter, its gradient after one step, and the logits; whole."""

    def whole(tensor: Any) -> Tensor:
        return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()

    output = model(input_ids=ids, labels=ids, use_cache=False)
    output.loss.backward()
    parameters = {name: whole(parameter) for name, parameter in model.named_parameters()}
    gradients = {name: whole(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    return parameters, gradients, output.logits.detach()


def loaded_on_a_rank(folder: Path, plan: dict[str, Any], ids: Tensor, chosen: dict[str, Any]) -> Any:
    return gathered(planc.from_pretrained(folder, plan, **chosen), ids)


def applied_on_a_rank(folder: Path, program: Any, ids: Tensor, own: Any, chosen: dict[str, Any]) -> Any:
    """`planc.apply` to a model that transformers loaded in the dtype `own`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=own)
    return gathered(planc.apply(model, program, **chosen), ids)


def agrees(found: Any, folder: Path, chosen: dict[str, Any], near: float) -> None:
    """What a rank has is what transformers has in one process: parameters exactly, the rest to `near`."""
    theirs = AutoModelForCausalLM.from_pretrained(folder, **chosen)
    expected = gathered(theirs, batch())
    assert found[0].keys() == expected[0].keys()
    for name, parameter in expected[0].items():
        torch.testing.assert_close(found[0][name], parameter, **PLAIN)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        scale = float(gradient.float().abs().max())
        torch.testing.assert_close(found[1][name], gradient, rtol=near, atol=near * max(scale, 1e-3))
    torch.testing.assert_close(found[2], expected[2], rtol=near, atol=near * float(expected[2].abs().max()))


EP: dict[str, Any] = {"tp_size": 2, "ep_size": 2}
ON_RANKS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("qwen3_moe", EP, {"dtype": "float32", "experts_implementation": "grouped_mm", "attn_implementation": "eager"}),
    ("qwen3_moe", {**EP, "ep_implementation": "all_reduce"}, {"dtype": "float64", "experts_implementation": "eager"}),
    ("dots1", {"tp_size": 2, "fsdp_size": 2}, {"dtype": torch.float32}),
    ("qwen3_moe", {"fsdp_size": 2}, {"dtype": torch.float64, "experts_implementation": "batched_mm"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(("name", "plan", "chosen"), ON_RANKS, ids=str)
def test_master_weights_of_a_bfloat16_checkpoint(
    name: str, plan: dict[str, Any], chosen: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(name, tmp_path)
    ranks = plan.get("tp_size", 1) * plan.get("fsdp_size", 1)
    for found in run_ranks(ranks, loaded_on_a_rank, folder, plan, batch(), chosen):
        agrees(found, folder, chosen, 1e-5)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("compiled", "own", "chosen"),
    [("bfloat16", "float32", {}), ("float16", "float32", {}), ("bfloat16", "bfloat16", {"dtype": "float32"})],
    ids=str,
)
def test_a_model_of_another_dtype_than_the_program_was_compiled_for(
    compiled: str, own: str, chosen: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved("dots1", tmp_path)
    program = planc.compile(folder, fsdp_size=2, dtype=compiled)
    for found in run_ranks(2, applied_on_a_rank, folder, program, batch(), own, chosen):
        agrees(found, folder, chosen or {"dtype": own}, 1e-5)


def moved_on_a_rank(folder: Path, program: Any, ids: Tensor) -> Tensor:
    """`planc.apply` to a model that was moved to bfloat16 by hand."""
    model = AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16)
    with torch.no_grad():
        logits: Tensor = planc.apply(model, program)(input_ids=ids).logits
    return logits


@pytest.mark.ranks
def test_a_model_that_was_moved_to_bfloat16(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path, torch.float32)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16)(input_ids=batch()).logits
    for logits in run_ranks(2, moved_on_a_rank, folder, planc.compile(folder, tp_size=2), batch()):
        assert logits.dtype == torch.bfloat16
        torch.testing.assert_close(logits, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


def refusal_on_a_rank(folder: Path, program: Any, own: Any) -> str:
    try:
        planc.apply(AutoModelForCausalLM.from_pretrained(folder, dtype=own(torch.distributed.get_rank())), program)
    except RunError as error:
        return str(error)
    return "it ran"


def bfloat16_everywhere(rank: int) -> str:
    return "bfloat16"


def another_on_rank_1(rank: int) -> str:
    return "float32" if rank == 1 else "bfloat16"


@pytest.mark.ranks
def test_dtypes_that_one_group_cant_have_are_refused_on_every_rank(tmp_path: Path) -> None:
    """Compiled for float32, where nothing needs a group of its own; compiled for bfloat16 it runs."""
    folder = saved("dots1", tmp_path, torch.float32)
    told = set(run_ranks(2, refusal_on_a_rank, folder, planc.compile(folder, fsdp_size=2), bfloat16_everywhere))
    assert len(told) == 1
    (message,) = told
    assert re.search(
        r"FSDP can't shard parameters of several dtypes as one group: .* is (bfloat16|float32) and", message
    )
    right = planc.compile(folder, fsdp_size=2, dtype="bfloat16")
    assert set(run_ranks(2, refusal_on_a_rank, folder, right, bfloat16_everywhere)) == {"it ran"}


@pytest.mark.ranks
def test_ranks_with_models_of_different_dtypes_are_stopped(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path, torch.float32)
    told = set(run_ranks(2, refusal_on_a_rank, folder, planc.compile(folder, tp_size=2), another_on_rank_1))
    assert len(told) == 1
    assert "the ranks were not started with the same model" in told.pop()
