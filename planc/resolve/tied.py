"""How styles act where parameters are tied: the tensor is its owner's, and so is its placement."""

from collections.abc import Mapping

from planc.model.manifest import Manifest
from planc.resolve.resolved import Assignment
from planc.styles.registry import create
from planc.styles.style import Style


def acting_style(assignment: Assignment, plan: Mapping[str, Assignment], manifest: Manifest) -> Style | None:
    """The style of `assignment` as it acts in `plan`; None for an unknown one or arguments that it doesn't take."""
    style = create(assignment.style, assignment.rule.plan)
    return None if style is None else as_tied(style, assignment, plan, manifest)


def as_tied(style: Style, assignment: Assignment, plan: Mapping[str, Assignment], manifest: Manifest) -> Style:
    """`style`, or on a tied parameter and on a module that has no other, what is left of it with the owner's placement.

    transformers 5.24.0 shards each name by its own rule and ties again once the weights are loaded
    (`_finalize_model_loading`, `modeling_utils.py`): the owner's tensor stays, the module keeps its own style's hooks.
    """
    owner = _owner(assignment, manifest)
    if owner is None:
        return style
    placing = plan.get(owner)
    source = create(placing.style, placing.rule.plan) if placing is not None else None
    if placing is not None and source is None:
        return style
    return style.on_tied(source.placement(manifest.parameters[owner][1]) if source is not None else None)


def _owner(assignment: Assignment, manifest: Manifest) -> str | None:
    if not manifest.file.ties:
        return None
    ties = dict(manifest.file.ties)
    if assignment.is_parameter:
        return ties.get(assignment.target)
    module = manifest.modules.get(assignment.target)
    if module is None or len(module.parameters) != 1:
        return None
    return ties.get(next(iter(module.parameters)))
