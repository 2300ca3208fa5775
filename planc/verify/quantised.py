"""What a trial of an unquantised copy proves of a quantised model."""

from dataclasses import replace

from planc.check.quantisation_methods import method_key
from planc.check.quantised import cut_weights
from planc.check.rule import CheckContext
from planc.runtime.checkpoint.quantisation import READ
from planc.verify import codes
from planc.verify.outcome import Verdict, VerifyReport

_NAMED = 3
_DEQUANTISED = "weights that are dequantised when they are loaded, as `planc apply` does, are what was tried"


def without_quantised_weights(found: VerifyReport, context: CheckContext) -> VerifyReport:
    """`found` by a copy without quantised weights, as it stands for the model of `context`.

    What the copy refutes stays refuted. A proof holds where no quantised weight is cut, and says then what was tried;
    where one is, nothing is proved: its packed values and scales, and the kernels that read them, were not there.
    """
    quantization = context.manifest.file.quantization
    if quantization is None or found.verdict is not Verdict.PROVED:
        return found
    key, names = method_key(quantization), tuple(shard.name for shard in cut_weights(context))
    if not names:
        tried = codes.TriedUnquantised.code.found(
            f"the copy isn't quantised by `{key}` as the model is; the plan cuts no quantised weight",
        )
        return replace(found, report=replace(found.report, diagnostics=(*found.diagnostics, tried)))
    finding = codes.NotVerified.code.found(
        f"the plan cuts weights quantised by `{key}`, and the copy's aren't quantised: the copy agrees, which says "
        "nothing on packed values, scales and kernels",
        targets=names[:_NAMED],
        target_count=len(names),
        notes=(_DEQUANTISED,) if key in READ else (),
    )
    report = replace(found.report, diagnostics=(*found.diagnostics, finding))
    return replace(found, verdict=Verdict.UNKNOWN, report=report)
