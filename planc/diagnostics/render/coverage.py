"""One line that says what a plan leaves whole."""

import re
from collections import Counter
from collections.abc import Iterator

from planc.diagnostics.diagnostic import Report
from planc.diagnostics.units import gigabytes

FEW = 3
_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def coverage_line(report: Report) -> str | None:
    """`llama: 8.0 GB of 16.1 GB a rank; whole on every rank: 1.1 GB, ...`, the largest names first, layers together.

    None where there is one rank, or where nothing is whole.
    """
    coverage = report.coverage
    if not coverage.replicated:
        return None
    held, total = gigabytes(coverage.bytes_per_rank), gigabytes(coverage.bytes_total)
    whole = gigabytes(sum(found.bytes for found in coverage.replicated))
    name = report.plan_file or report.model_name
    return f"{name}: {held} of {total} a rank; whole on every rank: {whole}, {', '.join(_named(report))}"


def _named(report: Report) -> Iterator[str]:
    sizes: Counter[str] = Counter()
    for found in report.coverage.replicated:
        sizes[_LAYER_NUMBER.sub("*", found.name)] += found.bytes
    largest = sizes.most_common()
    for name, size in largest[:FEW]:
        yield f"`{name}` ({gigabytes(size)})"
    if len(largest) > FEW:
        yield f"{len(largest) - FEW} more"
