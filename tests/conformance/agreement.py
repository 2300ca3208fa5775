"""How often `planc check` agrees with the truth table; writes `docs/conformance.md`.

python -m tests.conformance.agreement [--models llama ...] [--show]
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.made import made
from tests.conformance.predictions import Row, manifest_of, rows
from tests.conformance.truth_table import FOLDER, MODELS, SIZES, read

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"
HEAD = """# How far `planc check` agrees with reality

For each model type: the released tensor-parallel plan, every plan with one rule dropped or one style swapped for
another, and seeded changes of two to four rules of a block, at tp 2 and 3. The truth is transformers' own application
of the plan to a small copy on simulated ranks (inference, training, every gradient); the prediction is `planc check`
on the same copy's manifest, without running anything; what transformers' own runtime refuses to train and planc's
trains (PL415) is taken as where transformers runs the plan. `tests/conformance/truths/` holds the truths.

Of the popular types (the first 38) every plan is tried, of the others every dropped rule and one in six of the rest, at
tp 2. Rules on modules that the copy's batch doesn't reach (a vision tower) are left alone.

Regenerate with `python -m tests.conformance.truth_table` (it tries the plans of the popular types; `--experts` their
expert plans, `--models NAME --sizes 2 --one-in 6` the sample of another type) and
`python -m tests.conformance.agreement` (it compares, and writes this page).

- *wrong*: plans that transformers refuses, that crash, or that give another forward or other gradients.
- *agree*: of the plans that check decides, how many it decides as the truth is.
- *proved but wrong*, *refuted but right*: the two ways to be mistaken.
- *named*: of the wrong changes of a single rule that check refutes, how many findings name that rule.
"""


EXPERTS = """## Expert-parallel plans

The same for the EP plan at tp 2 and ep 2, the TP plan as released: every EP rule dropped or swapped, rules of the TP
plan that move to the EP plan (with their style, with another, onto the weight alone), and changes of two to four rules.
transformers resolves both plans; experts run by `grouped_mm`. A plan that dispatches nowhere is tried as it stands,
where transformers would leave it out without a word.
"""


def models_of(options: argparse.Namespace) -> list[str]:
    """The models that were named, or all that have a table, the popular ones first."""
    others = sorted(path.name.partition("-tp")[0] for path in FOLDER.glob("*-tp2.json"))
    return list(options.models or dict.fromkeys((*MODELS, *others)))


def collect(models: Sequence[str]) -> list[Row]:
    """Every row of the tables that exist."""
    found: list[Row] = []
    for model_type in models:
        for size, experts in (*((size, False) for size in SIZES), (2, True)):
            table = read(model_type, size, experts)
            if table is not None:
                found.extend(rows(table, manifest_of(table)))
    return found


def line(name: str, some: Sequence[Row]) -> str:
    """One row of the page."""
    wrong = sum(row.truth != "right" for row in some)
    unknown = sum(row.verdict == "unknown" for row in some)
    decided = [row for row in some if row.verdict != "unknown"]
    agree = sum(row.agrees for row in decided)
    missed = sum(row.verdict == "proved" and row.truth != "right" for row in some)
    alarms = sum(row.verdict == "refuted" and row.truth == "right" for row in some)
    single = [r for r in decided if len(r.mutation.changes) == 1 and r.truth != "right" and r.verdict == "refuted"]
    named = sum(row.names_the_rule for row in single)
    return (
        f"| {name} | {len(some)} | {wrong} | {percent(agree, len(decided))} | {missed} | {alarms} "
        f"| {percent(unknown, len(some))} | {percent(named, len(single))} |"
    )


def percent(part: int, whole: int) -> str:
    """A share, to a tenth of a percent, never rounded up to all."""
    return "-" if not whole else f"{int(1000 * part / whole) / 10:.1f} %"


def page(found: Sequence[Row]) -> str:
    """The document."""
    dense, experts = ([row for row in found if row.experts is kind] for kind in (False, True))
    return "\n".join([HEAD, made(), "", *table_of(dense), "", EXPERTS, *table_of(experts), ""])


def table_of(found: Sequence[Row]) -> list[str]:
    """The lines of one table, a model type each."""
    head = "| model type | plans | wrong | agree | proved but wrong | refuted but right | unknown | named |"
    models = dict.fromkeys(row.model_type for row in found)
    lines = [line(name, [row for row in found if row.model_type == name]) for name in models]
    return [head, "|---|---:|---:|---:|---:|---:|---:|---:|", *lines, line("**all**", found)]


def show(found: Iterable[Row]) -> None:
    """Print every row where check is mistaken, and what it left open."""
    for row in found:
        changes = "; ".join(f"{key}: {style or 'dropped'}" for key, style in row.mutation.changes) or "released"
        codes = Counter(finding.code for finding in row.findings if finding.severity in ("error", "unknown"))
        if row.verdict == "unknown":
            print(f"unknown  {row.model_type} tp{row.size} {changes} [{row.truth}] {dict(codes)}")
        elif not row.agrees:
            print(f"MISTAKEN {row.model_type} tp{row.size} {changes} [{row.truth}] {row.verdict} {dict(codes)}")
        elif len(row.mutation.changes) == 1 and row.truth != "right" and not row.names_the_rule:
            print(f"unnamed  {row.model_type} tp{row.size} {changes} {[(f.code, f.key) for f in row.findings]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--show", action="store_true", help="print what check is mistaken about, write nothing")
    options = parser.parse_args()
    found = collect(models_of(options))
    if options.show:
        show(found)
        print(line("all", found))
    else:
        DOCUMENT.write_text(page(found))


if __name__ == "__main__":
    main()
