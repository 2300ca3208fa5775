"""What changed plans really do: tried on a small copy of each model, and kept in `truths/`.

    python -m tests.conformance.truth_table [--models llama ...] [--seconds 3600]

adds what is missing. `python -m tests.conformance.agreement` compares the table with what `planc check` says.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.mutations import Mutation, of_experts, several, single

FOLDER = Path(__file__).parent / "truths"
MODELS = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "gemma2", "gemma3_text", "phi3",
    "glm4_moe", "olmo2", "olmoe", "gpt_neox", "apertus", "qwen3_next", "granite", "cohere2", "starcoder2", "phi",
    "mistral", "granitemoe", "glm4", "smollm3", "seed_oss", "ernie4_5", "exaone4", "olmo3", "helium", "nemotron_h",
    "phimoe", "minimax", "hunyuan_v1_moe", "dots1", "jais2", "cohere", "arcee", "qwen2_moe", "ernie4_5_moe",
)  # fmt: skip
SIZES = (2, 3)
SEVERAL = 40


def wanted(rules: dict[str, str], live: frozenset[str], size: int, one_in: int) -> Iterator[Mutation]:
    """The mutations of one model at one size, of the swaps and of those of several rules one in `one_in`."""
    for number, mutation in enumerate(single(rules, live)):
        is_swap = bool(mutation.changes) and mutation.changes[0][1] is not None
        if not is_swap or number % one_in == 0:
            yield mutation
    yield from list(several(rules, live, SEVERAL, seed=size))[::one_in]


def read(model_type: str, size: int, experts: bool = False) -> dict[str, Any] | None:
    """The table of one model at one size, of its TP plan or of its EP plan, None where there is none yet."""
    path = path_of(model_type, size, experts)
    return json.loads(path.read_text()) if path.exists() else None


def path_of(model_type: str, size: int, experts: bool) -> Path:
    return FOLDER / f"{model_type}-tp{size}{f'-ep{size}' if experts else ''}.json"


def build(model_type: str, size: int, deadline: float, one_in: int, experts: bool = False) -> None:
    """Try what is missing, until `deadline`."""
    from planc.verify.truth import TruthBench

    table = read(model_type, size, experts)
    if table is not None and table["complete"]:
        return
    bench = TruthBench.of(config_for(model_type, size), size, experts)
    if bench is None or bench.laboratory.reference.ill_conditioned:
        print(f"{model_type} tp{size}: no copy that can tell", flush=True)
        return
    model: Any = bench.copy.model
    rules = dict(model._tp_plan)
    names = running(model, bench.copy.batch)
    expert_rules = dict(model._ep_plan) if experts else {}
    names |= set(map(_generic, names))
    live = frozenset(key for key in (*rules, *expert_rules) if key in names)
    expert_rules = {key: style for key, style in expert_rules.items() if key in live}
    if experts and not expert_rules:
        print(f"{model_type}: no expert parallelism", flush=True)
        return
    config = model.config.to_dict()
    table = table or {
        "model_type": model_type,
        "size": size,
        "class": type(model).__name__,
        "config": config,
        "rules": rules,
        "expert_rules": expert_rules,
        "truths": [],
        "complete": False,
    }
    table["truths"] = table["truths"] or []
    known = {json.dumps(changes) for changes, _ in table["truths"]}
    changed = of_experts(expert_rules, rules, live, names, seed=size) if experts else wanted(rules, live, size, one_in)
    for mutation in changed:
        changes = [list(change) for change in mutation.changes]
        if json.dumps(changes) in known:
            continue
        if time.time() > deadline:
            break
        known.add(json.dumps(changes))
        try:
            plans = (rules, mutation.apply(expert_rules)) if experts else (mutation.apply(rules), None)
            table["truths"].append([changes, bench.judge(*plans)])
        except Exception as error:  # what a trial does to the interpreter it runs in is no truth about the plan
            print(f"{model_type} tp{size}: {changes}: {type(error).__name__}: {error}", flush=True)
    else:
        table["complete"] = one_in == 1
    bench.laboratory.close()
    FOLDER.mkdir(exist_ok=True)
    path_of(model_type, size, experts).write_text(_text(table))
    print(f"{path_of(model_type, size, experts).stem}: {len(table['truths'])} plans", flush=True)


def running(model: Any, batch: Any) -> set[str]:
    """The modules that a forward with `batch` calls, and their parameters: of others a trial says nothing."""
    called: set[str] = set()
    handles = [
        module.register_forward_pre_hook(lambda module, args, name=name: called.add(name))
        for name, module in model.named_modules()
    ]
    model(**batch)
    for handle in handles:
        handle.remove()
    return called | {name for name, _ in model.named_parameters() if name.rpartition(".")[0] in called}


# Widths and counts that plans divide.
_DIVIDED = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "moe_intermediate_size",
    "shared_expert_intermediate_size", "ffn_hidden_size", "n_embd", "n_head",
)  # fmt: skip


def config_for(model_type: str, size: int) -> Any:
    """The default config, with widths and heads multiplied where `size` doesn't divide the heads.

    Else every plan would be wrong for this one reason, and would hide what its changes do.
    """
    from planc.model.building.configs import build_config

    config = build_config({"model_type": model_type}, {}, name=model_type)
    fields = config.to_dict()
    if not any(isinstance(fields.get(name), int) and fields[name] % size for name in _DIVIDED):
        return config
    scaled = {name: fields[name] * size for name in _DIVIDED if isinstance(fields.get(name), int)}
    return build_config({**fields, **scaled}, {}, name=model_type)


def _generic(name: str) -> str:
    from planc.syntax.matching import generic_name

    return generic_name(name)


def _text(table: dict[str, Any]) -> str:
    """One line a truth, so that differences can be read."""
    head = {key: value for key, value in table.items() if key != "truths"}
    lines = ",\n".join(f"  {json.dumps(truth)}" for truth in table["truths"])
    return json.dumps(head, sort_keys=True)[:-1] + ', "truths": [\n' + lines + "\n]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--one-in", type=int, default=1, help="try only one in so many swaps, for a quick look")
    parser.add_argument("--experts", action="store_true", help="the EP plans at tp 2 and ep 2, not the TP plans")
    options = parser.parse_args()
    deadline = time.time() + options.seconds
    for size in (2,) if options.experts else options.sizes:
        for model_type in options.models:
            try:
                build(model_type, size, deadline, options.one_in, options.experts)
            except Exception as error:
                print(f"{model_type} tp{size}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
