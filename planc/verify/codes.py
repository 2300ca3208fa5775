"""What `planc verify` finds on a small copy. PL7xx."""

from typing import ClassVar

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Severity


@define("PL701", "wrong-output", Severity.ERROR)
class WrongOutput:
    """The sharded copy computes another output than the copy run whole.

    A small copy of the model is run whole and on simulated ranks, in double precision, and what comes out is compared;
    the tolerance is a small multiple of what rounding was measured to change. A real run would not stop: its loss is
    just another one.

    The finding names the first module whose output departs, and the rule that did it where swapping that rule for
    another mends the copy.

    Example:

        tp_plan:
          model.layers.*.mlp: all_reduce      # what down_proj returns is a sum already

    Use instead the rule that the fix names, or the model's own (`planc resolve MODEL`).
    """

    code: ClassVar[Code]


@define("PL702", "wrong-gradient", Severity.ERROR)
class WrongGradient:
    """The outputs of the sharded copy are right, and gradients are not.

    Inference is not affected, and training goes wrong without a word: the parameters named here learn from a part of
    their gradient, or the copies of one parameter on several ranks drift apart.

    Example:

        tp_plan:
          model.layers.*.self_attn.q_norm: replicate      # each rank's gradient covers its own heads only

    Use instead, for a parameter whose gradient each rank has a summand of, `replicated_with_grad_allreduce`.
    """

    code: ClassVar[Code]


@define("PL703", "does-not-run", Severity.ERROR)
class DoesNotRun:
    """The plan can be applied, and the sharded copy stops in its forward or backward.

    The copy keeps the divisibility of every width and head count by the mesh sizes, so that the model itself would
    stop at the same place, after all ranks loaded it.

    Example:

        tp_plan:
          model.layers.*.self_attn.o_proj: colwise      # its input is a shard, its weight expects the whole

    Use instead the rule that the fix names, or the model's own.
    """

    code: ClassVar[Code]


@define("PL704", "cannot-be-applied", Severity.ERROR)
class CannotBeApplied:
    """The plan is refused while it is applied to the copy.

    A style doesn't suit the module it stands on, a size doesn't divide, or a plan that the layout needs is empty. What
    the runtime said follows. `planc check` finds most of these, with the place.

    Example:

        tp_plan:
          model.layers.*.mlp.gate: colwise      # a router, not a Linear

    Use instead a style that fits the module: see `planc explain KEY`.
    """

    code: ClassVar[Code]


@define("PL705", "wrong-weights", Severity.ERROR)
class WrongWeights:
    """The shards of a parameter, gathered again, aren't the parameter.

    A checkpoint saved by such a run would hold other weights than the model has.

    Example: a style of your own whose `shard_param` cuts another block than its placement says.

    Use instead a placement that describes the bytes that each rank holds.
    """

    code: ClassVar[Code]


@define("PL706", "wrong-update", Severity.ERROR)
class WrongUpdate:
    """Outputs and first gradients are right, and the parameters after two optimizer steps are not.

    What is updated isn't what the next forward reads: a parameter that two modules share was split in two, or a
    gradient is reduced when the optimizer has passed.

    Example: `lm_head: colwise_gather_output` with `model.embed_tokens: replicate` on a model that ties both.

    Use instead the same rule for both names of a shared parameter.
    """

    code: ClassVar[Code]


@define("PL707", "wrong-checkpoint", Severity.ERROR)
class WrongCheckpoint:
    """What is saved under the plan and loaded again isn't what was saved.

    The sharded copy computes what the whole one does. Its checkpoint, written by the ranks together, can't be written,
    can't be read, or holds other weights, bit for bit. It was read in one process by transformers' `from_pretrained`
    and by planc's own loader; what the whole copy loses on the same way, without any plan, doesn't count.

    Example: a style of your own that leaves a parameter on each rank with a shape of its own, without saying which part
    of the whole it is.

    Use instead a placement that describes the bytes that each rank holds.
    """

    code: ClassVar[Code]


@define("PL710", "not-verified", Severity.UNKNOWN)
class NotVerified:
    """No verdict: the plan could not be tried, or what was tried can't tell right from wrong.

    The message says why. The model's weights may be quantised and cut by the plan, which the copy's are not. There may
    be no small copy of the model (it doesn't build from its config, or runs only on
    inputs that planc can't make), the layout may need more ranks than are simulated, or the copy may be
    ill-conditioned: if a change of one millionth in its weights turns its output upside down, agreement or
    disagreement proves nothing.

    Use instead `planc check`, and a comparison of a short real run with one process.
    """

    code: ClassVar[Code]


@define("PL711", "not-seen", Severity.UNKNOWN)
class NotSeen:
    """Parameters that the plan shards don't move anything that the copy computes.

    A wrong rule on them would go unnoticed. That is so for modules that only other inputs reach (a vision tower,
    when the copy was given text), and for parameters that no output depends on.

    Use instead a comparison on inputs that reach them.
    """

    code: ClassVar[Code]


@define("PL712", "tried-unquantised", Severity.NOTE)
class TriedUnquantised:
    """The model's weights are quantised, and the plan was tried on a copy whose weights are not.

    The plan leaves every quantised weight whole, so each rank computes with them what one process does; what it shards
    was tried. Kernels of the quantisation were not.

    Use instead of the copy, where those matter, a comparison of a short real run with one process.
    """

    code: ClassVar[Code]
