"""Verify one plan: copy, try, compare, blame."""

import copy
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from planc.check.legal_layouts import at_layout
from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Diagnostic, Report, Severity
from planc.layouts.layout import Layout
from planc.program.errors import ProgramError
from planc.runtime.experts.megamoe import NAME as MEGAMOE
from planc.styles import registry
from planc.styles.custom import ForeignStyle
from planc.verify import codes
from planc.verify.applying import ByProgram
from planc.verify.blame import Blame, Search
from planc.verify.case import Case
from planc.verify.copying.errors import CopyError
from planc.verify.copying.inputs import another
from planc.verify.exact import Exact
from planc.verify.experts import implementations, use_experts
from planc.verify.mixed_precision import at_bfloat16, has_mixed_precision, without_mixed_precision
from planc.verify.modules import FirstDeparture, Trace, first_departure
from planc.verify.observing import Steps, outputs
from planc.verify.outcome import Verdict, VerifyReport
from planc.verify.quantised import without_quantised_weights
from planc.verify.quiet import quiet
from planc.verify.reference import Reference, largest, reference
from planc.verify.reloading import save_and_reload
from planc.verify.sensitivity import untold_parameters, visibility
from planc.verify.shrinking import shrunk
from planc.verify.telling import findings
from planc.verify.trial import Laboratory, RankKind, Stopped, Trial

MOST_RANKS = 8
_STEPS = 2
_SEEDS = (0, 1, 2)
# Findings of `check` after which there is nothing to try: the plan's text, unknown names and styles, illegal sizes;
# wrong shards of quantised weights, of which the copy has none; and what the runtime that the plan names as its target
# can't do, as planc's own simulates the ranks.
_BEFORE = ("PL0", "PL1", "PL2", "PL305", "PL310", "PL415", "PL601")
# Findings of `check` that the verdict leaves open: what transformers' own runtime does otherwise than planc's, in which
# plans are tried.
_BESIDE = ("PL116", "PL415", "PL606")


@dataclass
class _Timer:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.since = self.seconds.get(name, 0.0) + now - self.since, now


def verify(context: CheckContext, report: Report, *, ranks: RankKind = "threads") -> VerifyReport:
    """Prove or refute the plan of `context`; `report` is what `check` said of it, whose texts findings point into.

    Errors of the plan's text, its names, its sizes, its target and of quantised weights are reported as they are. A
    layout of more than `MOST_RANKS` is tried at a smaller one that stands for it (`tried_at`), after `check` has found
    nothing wrong with its own sizes. The verdict is on planc's own runtime, in inference and training; what
    transformers' does otherwise stands beside it. Never raises for a plan or a model that can't be tried: the verdict
    is then unknown, with the reason.
    """
    before = [d for d in report.diagnostics if d.severity is Severity.ERROR and d.code.startswith(_BEFORE)]
    if before:
        return VerifyReport(Verdict.REFUTED, replace(report, diagnostics=tuple(before)))
    small = _fewer_ranks(context)
    if small is not context and not report.ok:
        # The copy shows nothing of what the real sizes do: check has judged those.
        return VerifyReport(Verdict.REFUTED, report)
    beside = tuple(d for d in report.diagnostics if d.code.startswith(_BESIDE))
    report = replace(report, diagnostics=())
    if reason := _cannot_try(small.layout):
        return _unknown(report, reason)
    if _loads_foreign_code(small):
        # Threads share a registered object, and what it remembers of one rank would be another's.
        ranks = "gloo"
    timer = _Timer()
    try:
        with quiet():
            case, whole = _case(small)
            timer.lap("copy")
            found = without_quantised_weights(_verify(case, whole, small, report, timer, ranks), context)
            said = replace(found.report, diagnostics=(*found.report.diagnostics, *beside))
            tried_at = small.layout if small is not context else None
            return replace(found, report=said, tried_at=tried_at, inference_only=small.layout.pp_size > 1)
    except CopyError as error:
        return _unknown(report, f"there is no small copy of the model: {error}")


def _fewer_ranks(context: CheckContext) -> CheckContext:
    """`context` at a layout that can be simulated and stands for its own, where there is one; else `context` itself."""
    layout = context.layout
    small = shrunk(layout, MOST_RANKS) if layout.world_size > MOST_RANKS else None
    return at_layout(context, small) if small is not None else context


def _loads_foreign_code(context: CheckContext) -> bool:
    """Whether the plan names styles or an implementation that planc doesn't know inside; loads them for all ranks.

    One that can't be loaded stops the ranks, which say why.
    """
    resolved, layout = context.resolved, context.layout
    uses = {a.style.name: a for plan in (resolved.tp, resolved.ep) for a in plan.values()}
    styles = [n for n, a in uses.items() if isinstance(registry.create(a.style, a.rule.plan), ForeignStyle)]
    for name in styles:
        with suppress(Exception):
            registry.style_object(name)
    is_own = layout.ep_size > 1 and registry.is_custom_ep_implementation(layout.ep_implementation)
    if is_own:
        with suppress(Exception):
            registry.ep_implementation_class(layout.ep_implementation)
    return is_own or bool(styles)


def _cannot_try(layout: Layout) -> str | None:
    if layout.world_size > MOST_RANKS:
        return f"the layout needs {layout.world_size} ranks, and at most {MOST_RANKS} are simulated"
    if layout.ep_size > 1 and layout.ep_implementation == MEGAMOE:
        return f"`ep_implementation: {MEGAMOE}` is one GPU kernel over FP4 experts, and ranks are simulated on the CPU"
    return None


def _unknown(report: Report, reason: str) -> VerifyReport:
    return VerifyReport(Verdict.UNKNOWN, replace(report, diagnostics=(codes.NotVerified.code.found(reason),)))


def _case(context: CheckContext) -> tuple[Case, Reference]:
    """A copy that can tell, or the last one that was made; several sets of weights are tried."""
    for seed in _SEEDS:
        case = Case.make(context.plan, context.resolved, context.manifest, seed)
        generator = torch.Generator().manual_seed(seed + 1000)
        others = [another(case.copy.batch, generator) for _ in range(case.layout.dp_size - 1)]
        whole = reference(case.copy.model, [case.copy.batch, *others], _STEPS)
        if not whole.ill_conditioned:
            break
    return case, whole


def _verify(
    case: Case, whole: Reference, context: CheckContext, report: Report, timer: _Timer, ranks: RankKind
) -> VerifyReport:
    if whole.ill_conditioned:
        return _unknown(
            report,
            "every copy is ill-conditioned: a change of one millionth in its weights changes its output by "
            f"{whole.amplification * 1e-6:.1%}",
        )
    try:
        program = case.program(context.plan)
        application = ByProgram(without_mixed_precision(program))
    except ProgramError as error:
        trial = Trial(stopped=Stopped("apply", 0, "; ".join((str(error).splitlines() or [""])[:3])))
        return _refuted(report, tuple(findings(trial, (), None, "", "eager")), timer)
    laboratory = Laboratory(case.copy.model, whole, case.layout, ranks)
    try:
        timer.lap("reference")
        tried: list[str] = []
        for experts in implementations(case.copy.model):
            if not _runs_whole(case.copy.model, experts, whole):
                continue
            trial = laboratory.trial(application, Steps() if tried else None, experts)
            tried.append(experts or "as the model runs them")
            timer.lap("ranks")
            if trial.stopped is not None and trial.stopped.lost:
                return _unknown(report, f"rank {trial.stopped.rank} was lost: {trial.stopped.error}")
            if not trial.agrees:
                blames, first, running = _explain(case, whole, context, application, trial, experts)
                timer.lap("blame")
                found = tuple(findings(trial, blames, first, running, experts))
                return replace(_refuted(report, found, timer), experts=tuple(tried))
        if has_mixed_precision(program):
            refused = _at_its_own_precision(case, whole, report, timer, laboratory, ByProgram(program))
            if refused is not None:
                return replace(refused, experts=tuple(tried))
        saved = save_and_reload(laboratory, ByProgram(program))
        timer.lap("reload")
        if saved.lost is not None:
            return _unknown(report, f"rank {saved.lost.rank} was lost while saving: {saved.lost.error}")
        if saved.finding is not None:
            return replace(_refuted(report, (saved.finding,), timer), experts=tuple(tried))
    finally:
        laboratory.close()
    return replace(_agreed(case, whole, context, report, tuple(tried), timer), reloaded=saved.readers)


def _at_its_own_precision(
    case: Case, whole: Reference, report: Report, timer: _Timer, laboratory: Laboratory, application: ByProgram
) -> VerifyReport | None:
    """What a plan that agrees in double precision does under its mixed precision; None where it agrees there too."""
    try:
        rounded = at_bfloat16(case.copy.model, whole)
    except Exception as error:  # a model may not run in bfloat16 at all
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return _unknown(
            report, f"the copy agrees in double precision, and doesn't run in bfloat16 in one process: {said}"
        )
    trial = laboratory.trial(application, reference=rounded)
    timer.lap("mixed precision")
    if trial.stopped is not None and trial.stopped.lost:
        return _unknown(report, f"rank {trial.stopped.rank} was lost: {trial.stopped.error}")
    if trial.stopped is not None:
        return _refuted(report, tuple(findings(trial, (), None, "", None)), timer)
    if trial.agrees:
        return None
    worst = max(trial.departures, key=lambda departure: departure.relative)
    return _unknown(
        report,
        f"the copy agrees in double precision; under mixed precision `{worst.name}` ({worst.part}) departs by "
        f"{worst.relative:.0%} of its scale, more than four times what bfloat16 makes in one process",
    )


def _refuted(report: Report, found: tuple[Diagnostic, ...], timer: _Timer) -> VerifyReport:
    return VerifyReport(Verdict.REFUTED, replace(report, diagnostics=found), seconds=timer.seconds)


def _runs_whole(model: nn.Module, experts: str | None, whole: Reference) -> bool:
    """Whether the whole copy runs with this experts implementation, and gives the same."""
    own = copy.deepcopy(model)
    try:
        if experts is not None:
            use_experts(own, experts)
        with torch.no_grad(), Exact():
            found = outputs(own, whole.batches[0])
    except Exception:  # an implementation may need other devices or types
        return False
    expected = {name.partition(".")[2]: t for name, t in whole.observation.inference.items() if name.startswith("0.")}
    return all(largest(found[name] - tensor) <= 1e-9 * largest(tensor) for name, tensor in expected.items())


def _explain(
    case: Case,
    whole: Reference,
    context: CheckContext,
    application: ByProgram,
    trial: Trial,
    experts: str | None,
) -> tuple[tuple[Blame, ...], FirstDeparture | None, str]:
    """What is to blame; searched for on threads, wherever the plan failed: there modules can be watched."""
    laboratory = Laboratory(case.copy.model, whole, case.layout)
    try:
        return _explained(case, laboratory, context, application, trial, experts)
    finally:
        laboratory.close()


def _explained(
    case: Case,
    laboratory: Laboratory,
    context: CheckContext,
    application: ByProgram,
    trial: Trial,
    experts: str | None,
) -> tuple[tuple[Blame, ...], FirstDeparture | None, str]:
    traces = [Trace() for _ in range(case.layout.world_size)]
    again = laboratory.observations(application, Steps(), experts, lambda rank, model: traces[rank].attach(model))
    # Another rank may be the first to fail this time, and the others are then released from wherever they wait.
    running = ""
    if trial.stopped is not None and isinstance(again, Stopped) and traces[again.rank].running:
        running = traces[again.rank].running[-1]
    first = None
    if any(departure.part in ("inference", "training") for departure in trial.departures):
        first = first_departure(_whole_trace(case, laboratory).outputs, [trace.outputs for trace in traces])
    return Search(case, laboratory, context.plan).blame(trial), first, running


def _whole_trace(case: Case, laboratory: Laboratory) -> Trace:
    trace, own = Trace(), copy.deepcopy(case.copy.model)
    trace.attach(own)
    with torch.no_grad(), Exact():
        outputs(own, laboratory.reference.batches[0])
    return trace


def _agreed(
    case: Case, whole: Reference, context: CheckContext, report: Report, experts: tuple[str, ...], timer: _Timer
) -> VerifyReport:
    untold = untold_parameters(case.copy.model, whole, case.resolved(context.plan))
    found: tuple[Diagnostic, ...] = ()
    if untold:
        message = f"{len(untold)} parameters show in nothing that the copy computes: a wrong rule goes unnoticed"
        found = (codes.NotSeen.code.found(message, targets=untold[:4], target_count=len(untold)),)
    timer.lap("sensitivity")
    return VerifyReport(
        Verdict.UNKNOWN if untold else Verdict.PROVED,
        replace(report, diagnostics=found),
        whole.unseen,
        visibility(whole),
        experts,
        seconds=dict(timer.seconds),
    )
