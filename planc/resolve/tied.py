"""How styles act where parameters are tied: the tensor is its owner's, and so is its placement."""

from collections.abc import Mapping

from planc.model.manifest import Manifest, Module
from planc.resolve.resolved import Assignment
from planc.styles.registry import create
from planc.styles.style import PlacedByOwner, Style


def acting_style(assignment: Assignment, plan: Mapping[str, Assignment], manifest: Manifest) -> Style | None:
    """The style of `assignment` as it acts in `plan`; None for an unknown one or arguments that it doesn't take."""
    style = create(assignment.style, assignment.rule.plan)
    return None if style is None else as_tied(style, assignment, plan, manifest)


def as_tied(style: Style, assignment: Assignment, plan: Mapping[str, Assignment], manifest: Manifest) -> Style:
    """`style`, or what is left of it with the owner's placement on a tied parameter and on its module.

    transformers 5.24.0 shards each name by its own rule and ties again once the weights are loaded
    (`_finalize_model_loading`, `modeling_utils.py`): the owner's tensor stays, the module keeps its own style's hooks.
    """
    if (module := _module(assignment, manifest)) is not None:
        style = style.at(module)
    tied = _tied(assignment, manifest)
    if tied is None:
        return style
    owner, alone = tied
    placing = plan.get(owner)
    source = create(placing.style, placing.rule.plan) if placing is not None else None
    if placing is not None and source is None:
        return style
    placement = source.placement(manifest.parameters[owner][1]) if source is not None else None
    return PlacedByOwner(style, placement) if assignment.is_parameter else style.on_tied(placement, alone)


def _module(assignment: Assignment, manifest: Manifest) -> Module | None:
    name = assignment.target.rpartition(".")[0] if assignment.is_parameter else assignment.target
    return manifest.modules.get(name)


def _tied(assignment: Assignment, manifest: Manifest) -> tuple[str, bool] | None:
    """The owner of the assignment's tied parameter, and whether its module has no other; None where none is tied."""
    if not manifest.file.ties:
        return None
    module = _module(assignment, manifest)
    own = module.parameters if module is not None else {}
    tied = {parameter: owner for parameter, owner in manifest.file.ties if parameter in own}
    if assignment.is_parameter:
        tied = {parameter: owner for parameter, owner in tied.items() if parameter == assignment.target}
    return (next(iter(tied.values())), len(own) == 1) if len(tied) == 1 else None
