"""From a failed trial to findings on plan lines."""

from collections.abc import Iterator, Sequence

from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix
from planc.syntax.matching import generic_name
from planc.verify import codes
from planc.verify.blame import Blame
from planc.verify.comparing import Departure
from planc.verify.modules import FirstDeparture
from planc.verify.trial import Trial

_NAMED = 4
_CODES: dict[str, Code] = {
    "weights": codes.WrongWeights.code,
    "inference": codes.WrongOutput.code,
    "training": codes.WrongOutput.code,
    "gradients": codes.WrongGradient.code,
    "stepped": codes.WrongUpdate.code,
}


def findings(
    trial: Trial, blames: Sequence[Blame], first: FirstDeparture | None, running: str, experts: str | None
) -> Iterator[Diagnostic]:
    """One finding for each rule to blame, or one without a rule. `running` is the module in which the ranks stopped."""
    notes = [
        *_notes(trial, first),
        *([f"with experts_implementation={experts}"] if experts is not None and experts != "eager" else []),
    ]
    message, code = _message(trial, running)
    targets = tuple(dict.fromkeys(departure.name for departure in _main(trial)))
    for blame in blames or (Blame(None),):
        rule = blame.rule
        yield code.found(
            message,
            span=rule.span if rule is not None else None,
            key=rule.key.text if rule is not None else None,
            label=_label(blame),
            targets=targets[:_NAMED],
            target_count=len(targets),
            notes=tuple(notes),
            help=tuple(_help(blame)),
            fix=_fix(blame),
        )


def _main(trial: Trial) -> list[Departure]:
    """The departures of the first part that has any: the rest follows from them."""
    return [d for d in trial.departures if d.part == trial.departures[0].part]


def _message(trial: Trial, running: str) -> tuple[str, Code]:
    if trial.stopped is not None:
        place = f" in `{running}`" if running else ""
        said = trial.stopped.error.strip().splitlines()[0]
        if trial.stopped.refused:
            return f"the plan can't be applied to a small copy of the model: {said}", codes.CannotBeApplied.code
        return f"a small copy of the model stops in its {trial.stopped.phase}{place}: {said}", codes.DoesNotRun.code
    main = _main(trial)
    worst = max(main, key=lambda departure: departure.relative)
    generic = list(dict.fromkeys(generic_name(d.name) for d in main))
    names = ", ".join(f"`{name}`" for name in generic[:_NAMED])
    more = f" and {len(generic) - _NAMED} more" if len(generic) > _NAMED else ""
    what = {
        "weights": f"gathered shards of {names}{more} are not the weights",
        "inference": f"the output of a small copy is wrong by {worst.relative:.0%} of its scale",
        "training": f"the output of a small copy, with gradients, is wrong by {worst.relative:.0%} of its scale",
        "gradients": f"outputs are right, and the gradient of {names}{more} is wrong by up to {worst.relative:.0%}",
        "stepped": f"after two SGD steps {names}{more} are wrong",
    }[worst.part]
    return what, _CODES[worst.part]


def _notes(trial: Trial, first: FirstDeparture | None) -> Iterator[str]:
    if first is not None:
        yield (
            f"`{first.module or 'the model'}` is the first module whose output departs: on rank {first.rank}, by "
            f"{first.relative:.1%} of its largest element"
        )
    for departure in _main(trial)[:_NAMED] if trial.departures else ():
        if departure.shape is not None:
            shape = "x".join(map(str, departure.shape)) or "nothing"
            yield f"`{departure.name}` is {shape} on rank {departure.rank}: not the whole tensor"
        elif departure.exact and _is_simple(departure.factor):
            yield f"`{departure.name}` is exactly {departure.factor:.6g} times the right one, on rank {departure.rank}"
        else:
            yield (
                f"`{departure.name}` on rank {departure.rank}: largest difference {departure.error:.3g}, "
                f"largest element {departure.scale:.3g}"
            )


def _is_simple(factor: float) -> bool:
    """Whether a factor is the size of some group, or one over it: a hint, unlike any other number."""
    return any(abs(factor * size - 1) < 1e-6 or abs(factor / size - 1) < 1e-6 for size in range(2, 17))


def _label(blame: Blame) -> str:
    if blame.rule is None:
        return ""
    return "wrong without the other rules, too" if blame.alone else "swapping this rule mends the copy"


def _help(blame: Blame) -> Iterator[str]:
    if blame.added is not None:
        yield f"add to tp_plan `{blame.added.key.text}: {blame.added.style.text}`: with it the copy agrees"
    elif blame.rule is not None and blame.style is not None:
        yield f"`{blame.rule.key.text}: {blame.style}`" + (" is the model's own" if blame.alone else " mends the copy")
    elif blame.rule is not None:
        yield "without this rule the copy agrees"


def _fix(blame: Blame) -> Fix | None:
    rule = blame.rule
    if rule is None or blame.style is None or rule.origin != "user" or rule.span.is_virtual:
        return None
    return Fix(f"write `{blame.style}`", (Edit(rule.style.span, blame.style),))
