"""What is known of tensor and expert parallelism for each method of quantisation that transformers loads.

Read from transformers 5.24.0. `tests/check/test_quantisation.py` compares the keys with its own mapping, so that a new
method doesn't go unnoticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from planc.model.manifest import Quantization


class Standing(StrEnum):
    """What becomes of a quantised weight that a plan shards."""

    JUDGED = "judged"  # it shards right where shards end between groups (PL305)
    EXPERTS = "experts"  # whole experts on each rank are right; cuts inside an expert were never tried
    REFUSED = "refused"  # transformers raises an error, whatever the plan
    FAILS = "fails"  # the run is known to crash, or to compute something else
    UNTRIED = "untried"  # nothing is known


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its standing, the reason in words that continue a sentence, and the file of transformers it is in."""

    standing: Standing
    why: str
    source: str


# `HfQuantizer.update_parallel_plan` copies the rule of a weight to scales beside it that have names of their own.
_UNTRIED = (
    "transformers has no rules of its own for the packed tensors and scales, and nobody tried whether the plan's "
    "rules fit them"
)


def _quantizer(standing: Standing, why: str, file: str) -> Method:
    return Method(standing, why, f"quantizers/quantizer_{file}.py")


METHODS: Mapping[str, Method] = {
    "aqlm": _quantizer(Standing.UNTRIED, _UNTRIED, "aqlm"),
    "auto-round": _quantizer(Standing.UNTRIED, _UNTRIED, "auto_round"),
    "awq": _quantizer(Standing.UNTRIED, _UNTRIED, "awq"),
    "bitnet": _quantizer(Standing.UNTRIED, _UNTRIED, "bitnet"),
    "bitsandbytes_4bit": _quantizer(  # and huggingface/transformers#38122
        Standing.FAILS, "each is stored as one flat row of bytes, in which a style finds no dim to shard", "bnb_4bit"
    ),
    "bitsandbytes_8bit": _quantizer(Standing.UNTRIED, _UNTRIED, "bnb_8bit"),
    "compressed-tensors": _quantizer(Standing.UNTRIED, _UNTRIED, "compressed_tensors"),
    "eetq": _quantizer(Standing.UNTRIED, _UNTRIED, "eetq"),
    "fbgemm_fp8": _quantizer(Standing.UNTRIED, _UNTRIED, "fbgemm_fp8"),
    "fouroversix": _quantizer(Standing.UNTRIED, _UNTRIED, "fouroversix"),
    "fp8": _quantizer(Standing.JUDGED, "weights and scales are cut alike, block by block", "finegrained_fp8"),
    "fp_quant": _quantizer(Standing.UNTRIED, _UNTRIED, "fp_quant"),
    "gemma": _quantizer(
        Standing.UNTRIED,
        "transformers has rules for its scales, and nobody tried whether the results are right",
        "gemma",
    ),
    "gguf": _quantizer(Standing.UNTRIED, _UNTRIED, "gguf"),
    "gptq": _quantizer(Standing.UNTRIED, _UNTRIED, "gptq"),
    "higgs": _quantizer(Standing.UNTRIED, _UNTRIED, "higgs"),
    "hqq": _quantizer(Standing.UNTRIED, _UNTRIED, "hqq"),
    "metal": _quantizer(Standing.UNTRIED, _UNTRIED, "metal"),
    "mxfp4": Method(
        Standing.EXPERTS,
        "blocks and scales of whole experts are cut alike, but inside an expert they lie on other dims than the rule's",
        "integrations/mxfp4.py",
    ),
    "mxfp8": _quantizer(Standing.JUDGED, "weights and scales are cut alike, block by block", "finegrained_fp8"),
    "nvfp4": _quantizer(
        Standing.REFUSED, "it reads no weights that are stored so, and its scales have no rules", "nvfp4"
    ),
    "quanto": _quantizer(Standing.UNTRIED, _UNTRIED, "quanto"),
    "quark": _quantizer(Standing.UNTRIED, _UNTRIED, "quark"),
    "sinq": _quantizer(Standing.UNTRIED, _UNTRIED, "sinq"),
    "spqr": _quantizer(Standing.UNTRIED, _UNTRIED, "spqr"),
    "torchao": _quantizer(Standing.UNTRIED, _UNTRIED, "torchao"),
    "vptq": _quantizer(Standing.UNTRIED, _UNTRIED, "vptq"),
}

_FOREIGN = Method(
    Standing.UNTRIED,
    "transformers 5.24.0 has no such method, and loads the checkpoint as if it weren't quantised, with a warning",
    "quantizers/auto.py",
)


def method_key(quantization: Quantization) -> str:
    """The name of the method in transformers' mapping, where bitsandbytes has two, by its bits."""
    if quantization.method == "bitsandbytes":
        return f"bitsandbytes_{8 if quantization.bits == 8 else 4}bit"
    return quantization.method


def method_of(quantization: Quantization) -> Method:
    """What is known of the method; of one that transformers doesn't have, that."""
    return METHODS.get(method_key(quantization), _FOREIGN)
