"""PL603."""

from collections.abc import Iterator

from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity

LEAST_ACCELERATE = (1, 12)


@define("PL603", "trainer-needs", Severity.NOTE)
class TrainerNeeds(Rule):
    """Says what the Trainer of transformers needs beside the plan.

    A model that was sharded while loading needs accelerate 1.12 or newer, which mirrors `tp_size` and `fsdp_size`, and
    can't resume from a checkpoint yet: the Trainer takes `save_only_model=True` or `save_strategy="no"` only.
    `planc.prepare_trainer(trainer)` lets it save and resume everything, at any layout. It also mends label smoothing:
    FSDP renames the model's class, by which the Trainer knows that labels are shifted.

    accelerate 1.15.0 takes parallel sizes on accelerators alone, and at TP with FSDP it gives every rank the same rows
    of an `IterableDataset`, unless `dispatch_batches` is False. `planc.parallelism_config(model)`, among the
    `TrainingArguments`, is for both.

    Example:

        target: trainer
        fsdp_size: 8

    Use instead: the same, with `TrainingArguments(save_only_model=True)`.

    Source: the guide to expert parallelism of transformers 5.23; `accelerate/data_loader.py` and
    `accelerate/parallelism_config.py`, accelerate 1.15.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.target != "trainer" or context.layout.world_size == 1:
            return
        version = context.manifest.file.versions.get("accelerate", "")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        is_old = len(numbers) == 2 and numbers < LEAST_ACCELERATE
        yield self.code.found(
            f"the Trainer needs accelerate 1.12 or newer, and this is {version}"
            if is_old
            else "the Trainer needs accelerate 1.12 or newer for a sharded model",
            severity=Severity.ERROR if is_old else self.code.severity,
            span=size_span(context, "target"),
            notes=tuple(_notes(context)),
        )


def _notes(context: CheckContext) -> Iterator[str]:
    yield 'it takes `save_only_model=True` or `save_strategy="no"` only; `planc.prepare_trainer` lets it resume'
    layout = context.layout
    if layout.fsdp_size * layout.dp_replicate_size > 1:
        yield "`label_smoothing_factor` needs `planc.prepare_trainer`, or labels aren't shifted"
    if layout.tp_size > 1 and layout.fsdp_size * layout.dp_replicate_size > 1:
        yield "rows of an `IterableDataset` need `planc.parallelism_config`, or every rank gets the same ones"
