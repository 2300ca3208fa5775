"""Pipeline stages, as `apply_pipeline_parallelism` of transformers 5.24.0 splits them (`pipeline_parallel.py`)."""

from itertools import pairwise

from planc.ir.operations import SplitStages
from planc.model.manifest import Manifest
from planc.program.compilation import Compilation
from planc.program.program import Instruction, Program


def split_stages(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """Add SplitStages where the layout has several stages."""
    stages = program.layout.pp_size
    if stages == 1:
        return program.instructions
    manifest = compilation.manifest
    if objection := pipeline_objection(manifest):
        compilation.refuse(None, "", objection)
        return program.instructions
    base = f"{manifest.file.base_model_prefix}."
    embedding = f"{base}embed_tokens"
    operation = SplitStages(
        f"{base}layers",
        stage_ranges(_count(manifest, f"{base}layers"), stages),
        first=(embedding,),
        last=(*((embedding,) if _is_tied(manifest) else ()), f"{base}norm", "lm_head"),
    )
    return (*program.instructions, Instruction("pp", operation))


def stage_ranges(layers: int, stages: int) -> tuple[tuple[int, int], ...]:
    """Layers `[start, end)` of each stage; the first ones take the remainder, one layer each.

    Source: `PipelineStage.layer_range_for_rank`.
    """
    each, rest = divmod(layers, stages)
    starts = [stage * each + min(stage, rest) for stage in range(stages + 1)]
    return tuple(pairwise(starts))


def pipeline_objection(manifest: Manifest) -> str | None:
    """Why the model can't be split into stages, or None.

    transformers splits `layers` of the base model, keeps `embed_tokens` on the first stage, and `norm` and `lm_head`
    on the last, by these very names: a model that calls them otherwise would run them on every stage.
    """
    base = manifest.file.base_model_prefix
    needed = (f"{base}.layers", f"{base}.embed_tokens", f"{base}.norm", "lm_head")
    missing = [name for name in needed if name not in manifest.modules]
    if not missing:
        return None
    names = ", ".join(f"`{name}`" for name in missing)
    return f"pp_size > 1 needs the modules {', '.join(needed)}; `{manifest.file.class_name}` has no {names}"


def _count(manifest: Manifest, layers: str) -> int:
    depth = layers.count(".") + 1
    return sum(name.count(".") == depth and name.startswith(f"{layers}.") for name in manifest.modules)


def _is_tied(manifest: Manifest) -> bool:
    return any({name.partition(".")[0], other.partition(".")[0]} & {"lm_head"} for name, other in manifest.file.ties)
