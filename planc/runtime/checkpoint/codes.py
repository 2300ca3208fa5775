"""What can be wrong with a checkpoint folder: PL8xx."""

from typing import ClassVar

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Severity


@define("PL801", "unreadable-checkpoint", Severity.ERROR)
class UnreadableCheckpoint:
    """The folder holds no checkpoint that planc reads.

    Weights are read from `model.safetensors`, or from the files that `model.safetensors.index.json` names; these must
    lie in the folder itself. Pickled checkpoints (`pytorch_model.bin`) are never opened: a pickle runs whatever code
    its author put into it.

    Example:

        planc checkpoint check path/to/folder llama

    Use instead a folder with safetensors; `save_pretrained` of transformers writes them.
    """

    code: ClassVar[Code]


@define("PL802", "damaged-file", Severity.ERROR)
class DamagedFile:
    """A file of the checkpoint is missing, cut off, or its header contradicts itself.

    A safetensors file begins with the length of its header; the header gives each tensor's dtype, shape and place.
    A download that broke off, or a disk that was full, shows in a file that is shorter than its header says. Only
    headers are read, so changed values can't be noticed.

    Use instead a complete copy: fetch the file that is named again.
    """

    code: ClassVar[Code]


@define("PL803", "missing-tensor", Severity.ERROR)
class MissingTensor:
    """The model has a weight that the checkpoint doesn't hold.

    Loading it would leave random values there. Names and forms of older checkpoints (an expert a tensor, renamed keys)
    are those that transformers converts; tied weights need one of their names.

    Use instead the checkpoint of this model, or the model class that it was saved from.
    """

    code: ClassVar[Code]


@define("PL804", "surplus-tensor", Severity.ERROR)
class SurplusTensor:
    """The checkpoint holds a tensor that the model has no place for.

    It would be left out without a word: often a sign of another model, of another size, or of a quantised
    checkpoint (`weight_scale`, `qweight`). Tensors that the model's class declares superfluous are not reported.

    Use instead the model that the checkpoint was saved from.
    """

    code: ClassVar[Code]


@define("PL805", "wrong-shape", Severity.ERROR)
class WrongShape:
    """A tensor of the checkpoint has another shape than the model's.

    Use instead a config with the sizes of the checkpoint, such as its own `config.json`.
    """

    code: ClassVar[Code]


@define("PL806", "wrong-dtype", Severity.ERROR)
class WrongDtype:
    """A tensor holds codes where the model holds numbers.

    Integers and 8-bit floats are values of a quantisation, which a plain cast would turn into wrong weights. Among
    bfloat16, float16, float32 and float64 planc converts.

    Use instead an unquantised checkpoint, or one whose `config.json` says how it is quantised.
    """

    code: ClassVar[Code]


@define("PL807", "unlisted-file", Severity.WARNING)
class UnlistedFile:
    """A safetensors file of the folder is not part of the checkpoint: the index doesn't name it.

    Nothing of it is read. It may be left over from an earlier save, or be a second copy of the weights in the format of
    the model's authors.

    Use instead a folder with the files of one checkpoint.
    """

    code: ClassVar[Code]


@define("PL808", "quantised-checkpoint", Severity.ERROR)
class QuantisedCheckpoint:
    """The weights are quantised by a method that planc doesn't read.

    `quantization_config` in `config.json` names it. planc computes with plain weights: it reads FP8 and MXFP4, and
    dequantises them to the model's dtype. Other methods keep codes that only their own kernels take.

    Use instead a checkpoint that isn't quantised, or is in FP8 or MXFP4; or transformers' own loader.
    """

    code: ClassVar[Code]
