"""What verification says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planc.diagnostics.diagnostic import Diagnostic, Report
from planc.layouts.layout import Layout


class Verdict(StrEnum):
    """`UNKNOWN` is never the same as `PROVED`."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The verdict on one plan for one model at one layout.

    `report` has what the renderers print. `unseen` are parameters of the copy that nothing it computes depends on;
    `seen` is the smallest ratio, over all others, of a gradient's largest element to its tolerance. `experts` are the
    experts implementations that were tried, `reloaded` the readers that gave back what the ranks saved: `transformers`'
    own, and `planc`. `tried_at` is the smaller layout that stood for the plan's own, where that has too many ranks.
    `inference_only` where nothing was trained: pipeline stages have no backward.
    """

    verdict: Verdict
    report: Report = field(default_factory=Report)
    unseen: tuple[str, ...] = ()
    seen: float = 0.0
    experts: tuple[str, ...] = ()
    reloaded: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    tried_at: Layout | None = None
    inference_only: bool = False

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.report.diagnostics

    @property
    def ok(self) -> bool:
        """Whether the plan isn't refuted, and no finding has error severity."""
        return self.verdict is not Verdict.REFUTED and self.report.ok
