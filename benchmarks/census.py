"""Try the plan that every model type of transformers brings along, and write `docs/census.md`.

    python benchmarks/census.py [--types llama,qwen3_moe] [--processes 2] [--rows rows.jsonl] [--output docs/census.md]

Every model type whose config carries a TP or EP plan is shrunk to a small copy, and its own plan is applied over
simulated ranks: by planc's program, and by transformers' own functions. What is refuted is confirmed on gloo ranks with
transformers' own application before it is written down.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from made import made

LAYOUTS: dict[str, dict[str, int]] = {
    "tp 2": {"tp_size": 2},
    "tp 4": {"tp_size": 4},
    "ep 2": {"fsdp_size": 2, "ep_size": 2},
    "ep 4": {"tp_size": 2, "fsdp_size": 2, "ep_size": 4},
}


@dataclass(frozen=True)
class Row:
    """The verdict on one model type at one layout; `detail` is what departs, or why nothing can be said."""

    model_type: str
    layout: str
    verdict: str
    detail: str = ""
    confirmed: str = ""
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", help="only these model types, separated by commas")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "docs" / "census.md")
    parser.add_argument("--rows", type=Path, help="keep rows in this file, and go on from those that it has")
    options = parser.parse_args()
    types = options.types.split(",") if options.types else list(model_types())
    rows = read_rows(options.rows) if options.rows is not None and options.rows.exists() else []
    done = {row.model_type for row in rows}
    # Not `ProcessPoolExecutor`: on Python 3.11 it hangs when `max_tasks_per_child` is reached.
    with get_context("spawn").Pool(options.processes, maxtasksperchild=20) as pool:
        for found in pool.imap(census, [t for t in types if t not in done]):
            rows += found
            for row in found:
                print(f"{row.model_type:32} {row.layout:6} {row.verdict:8} {row.detail}", flush=True)
            if options.rows is not None:
                options.rows.write_text("".join(f"{json.dumps(asdict(row))}\n" for row in rows))
    options.output.write_text(document(rows, len(types), options.processes))


def read_rows(path: Path) -> list[Row]:
    """Rows of an earlier run."""
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def model_types() -> Iterator[str]:
    """Model types whose config class carries a plan."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for model_type in CONFIG_MAPPING:
        config = CONFIG_MAPPING[model_type]
        if getattr(config, "base_model_tp_plan", None) or getattr(config, "base_model_ep_plan", None):
            yield model_type


def census(model_type: str) -> list[Row]:
    """All layouts of one model type."""
    import warnings

    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.utils import logging

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    try:
        config = CONFIG_MAPPING[model_type]()
    except Exception as error:  # config classes validate in many ways
        return [Row(model_type, "", "unknown", f"no default config: {first_line(error)}")]
    rows = []
    for layout in LAYOUTS:
        started = time.perf_counter()
        try:
            row = verdict(model_type, layout, config)
        except Exception as error:  # one model must not end the census
            row = Row(model_type, layout, "unknown", f"census failed: {type(error).__name__}: {first_line(error)}")
        if row is not None:
            rows.append(Row(**{**asdict(row), "seconds": round(time.perf_counter() - started, 1)}))
        if row is not None and row.detail.startswith("no copy"):
            break
    return rows


def verdict(model_type: str, name: str, config: Any) -> Row | None:
    """The verdict at one layout; None where the model has no plan that the layout would switch on."""
    from planc.layouts.layout import Layout
    from planc.model.building.builder import build_manifest
    from planc.model.manifest import Manifest
    from planc.program.errors import ProgramError
    from planc.syntax.plan import Plan
    from planc.verify.applying import ByProgram, ByTransformers
    from planc.verify.case import Case
    from planc.verify.copying.copy import small_copy
    from planc.verify.copying.errors import CopyError
    from planc.verify.copying.inputs import another
    from planc.verify.observing import Steps
    from planc.verify.quiet import quiet
    from planc.verify.reference import reference
    from planc.verify.sensitivity import untold_parameters
    from planc.verify.trial import Laboratory

    layout = Layout(**LAYOUTS[name])
    with quiet():
        for seed in range(3):
            try:
                copied = small_copy(config, list(LAYOUTS[name].values()), seed=seed)
            except CopyError as error:
                return Row(model_type, name, "unknown", f"no copy: {first_line(error)}")
            manifest = Manifest(build_manifest(copied.model, model_type, trace=False))
            plans = manifest.file.plans
            if not (plans.ep if layout.ep_size > 1 else plans.tp) or (layout.dp_size > 1 and not plans.fsdp):
                return None
            generator = torch_generator(seed)
            batches = [copied.batch, *(another(copied.batch, generator) for _ in range(layout.dp_size - 1))]
            whole = reference(copied.model, batches, 2)
            if not whole.ill_conditioned:
                break
        if whole.ill_conditioned:
            change = whole.amplification * 1e-6
            return Row(model_type, name, "unknown", f"ill-conditioned: a change of 1e-6 makes one of {change:.1g}")
        case = Case(manifest, manifest, copied, layout)
        resolved = case.resolved(Plan())
        theirs = ByTransformers(
            layout, *({n: a.style.name for n, a in resolved.plan(kind).items()} for kind in ("tp", "ep", "fsdp"))
        )
        laboratory = Laboratory(copied.model, whole, layout)
        try:
            by_transformers = laboratory.trial(theirs, Steps())
            try:
                by_program = laboratory.trial(ByProgram(case.program(Plan())))
            except ProgramError as error:
                by_program = None
                refusal = first_line(error)
        finally:
            laboratory.close()
        if by_program is not None and by_program.agrees and by_transformers.agrees:
            untold = untold_parameters(copied.model, whole, resolved)
            if untold:
                return Row(model_type, name, "unknown", f"nothing shows of {generic(untold)}")
            return Row(model_type, name, "proved")
        theirs_told = told(by_transformers)
        if by_program is not None and by_program.agrees:
            return Row(model_type, name, "proved", f"by transformers' own functions: {theirs_told}")
        detail = f"planc refuses it: {refusal}" if by_program is None else told(by_program)
        if by_program is None or detail != theirs_told:
            detail = f"{detail}; by transformers' own functions: {theirs_told}"
        gloo = Laboratory(copied.model, whole, layout, "gloo")
        confirmed = told(gloo.trial(theirs, Steps()))
        return Row(model_type, name, "refuted", detail, "yes" if confirmed == theirs_told else confirmed)


def torch_generator(seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed(seed + 1000)


def told(trial: Any) -> str:
    """A trial in a few words."""
    if trial.stopped is not None:
        return f"stops in {trial.stopped.phase or 'a collective'}: {trial.stopped.error.splitlines()[0][:160]}"
    if not trial.departures:
        return "agrees"
    part = trial.departures[0].part
    names = [departure.name for departure in trial.departures if departure.part == part]
    words = {"gradients": "gradients of ", "inference": "output: ", "training": "output with gradients: "}
    return words.get(part, f"{part}: ") + generic(names)


def generic(names: Sequence[str]) -> str:
    """Names with `*` for layer numbers, each once."""
    from planc.syntax.matching import generic_name

    return ", ".join(f"`{name}`" for name in dict.fromkeys(map(generic_name, names)))


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def document(rows: Sequence[Row], count: int, processes: int) -> str:
    """The census as Markdown."""
    import torch
    import transformers

    types = list(dict.fromkeys(row.model_type for row in rows))
    uncopied = [row for row in rows if row.verdict == "unknown" and not row.detail.startswith(("ill-", "nothing"))]
    tried = [t for t in types if t not in {row.model_type for row in uncopied}]
    lines = [
        "# Census of released plans",
        "",
        "What the plans that transformers brings along do to a small copy of their model: outputs, every gradient, and",
        "parameters after two SGD steps, against one process. Written by `python benchmarks/census.py`.",
        "",
        f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}; "
        f"{sum(row.seconds for row in rows) / 60 / processes:.0f} minutes in {processes} processes. {made()}",
        "",
        f"- {count} model types carry a plan; {len(types)} were tried, and {len(tried)} have a small copy that runs.",
    ]
    for verdict_ in ("proved", "refuted", "unknown"):
        count = sum(row.verdict == verdict_ for row in rows)
        lines.append(f"- {count} {verdict_}, of {len(rows)} pairs of a model type and a layout.")
    layouts = ", ".join(
        f"*{name}* is " + ", ".join(f"{k}={v}" for k, v in sizes.items()) for name, sizes in LAYOUTS.items()
    )
    lines += ["", f"Layouts: {layouts}. A dash: the model has no plan for it.", "", "## Refuted", ""]
    lines += table(
        ("model type", "layout", "what departs", "confirmed on gloo ranks, by transformers' own application"),
        [(r.model_type, r.layout, r.detail, r.confirmed) for r in rows if r.verdict == "refuted"],
    )
    lines += ["", "## Unknown", ""]
    lines += table(
        ("model type", "layout", "reason"), [(r.model_type, r.layout, r.detail) for r in rows if r.verdict == "unknown"]
    )
    lines += ["", "## Proved, where transformers' own functions on the same copy don't agree", ""]
    lines += table(
        ("model type", "layout", "what they gave"),
        [(r.model_type, r.layout, r.detail) for r in rows if r.verdict == "proved" and r.detail],
    )
    lines += ["", "## All", ""]
    by_place = {(row.model_type, row.layout): row.verdict for row in rows}
    lines += table(
        ("model type", *LAYOUTS), [(t, *(by_place.get((t, layout), "–") for layout in LAYOUTS)) for t in tried]
    )
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |", *body]


if __name__ == "__main__":
    main()
