"""The line that says what a plan leaves whole."""

from planc.diagnostics.diagnostic import Coverage, Replicated, Report
from planc.diagnostics.render.coverage import coverage_line


def test_the_largest_names_come_first_and_layers_together() -> None:
    whole = (
        Replicated("table.weight", 9_400_000_000),
        *(Replicated(f"layers.{n}.gate.weight", 10**9) for n in range(3)),
    )
    whole += tuple(Replicated(f"{name}.weight", 10**6) for name in "abc")
    report = Report(plan_file="plan.yaml", coverage=Coverage(0, 0, 3 * 10**10, 2 * 10**10, 0, whole))
    assert coverage_line(report) == (
        "plan.yaml: 20.0 GB of 30.0 GB a rank; whole on every rank: 12.4 GB, `table.weight` (9.4 GB), "
        "`layers.*.gate.weight` (3.0 GB), `a.weight` (1.0 MB), 2 more"
    )


def test_nothing_is_said_where_nothing_is_whole() -> None:
    assert coverage_line(Report(coverage=Coverage(10, 10, 40, 20, 20))) is None
