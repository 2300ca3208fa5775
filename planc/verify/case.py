"""A plan for a large model, carried over to its small copy."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planc.layouts.layout import Layout
from planc.model.building.builder import build_manifest
from planc.model.building.configs import build_config
from planc.model.building.quantization import without_quantization
from planc.model.errors import ModelError
from planc.model.manifest import Manifest
from planc.program.lower import lower
from planc.program.program import Program
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.resolve.resolver import resolve
from planc.syntax.plan import Indices, Plan, PlanKind
from planc.verify.copying.composite import whole_config
from planc.verify.copying.copy import SmallCopy, small_copy
from planc.verify.copying.depth import Marks
from planc.verify.copying.errors import CopyError

_NOT_FINITE = ("inf", "-inf", "nan")
PLANS: tuple[PlanKind, ...] = ("tp", "ep", "fsdp")


@dataclass(frozen=True)
class Case:
    """A model, its small copy, and a layout; `program` compiles any plan of the model for the copy."""

    large: Manifest
    small: Manifest
    copy: SmallCopy
    layout: Layout

    @classmethod
    def make(cls, plan: Plan, resolved: ResolvedPlan, manifest: Manifest, seed: int = 0) -> "Case":
        """The case of `plan`, resolved against `manifest`. Raises CopyError where there is no copy."""
        if "model_type" not in manifest.file.config:
            raise CopyError(f"`{manifest.file.name}` has no transformers config to shrink")
        layout = resolved.layout
        try:
            fields = without_quantization(_with_numbers(manifest.file.config))
            config = build_config(fields, {}, name=manifest.file.name)
        except ModelError as error:
            raise CopyError(str(error)) from error
        copied = small_copy(
            whole_config(config, fields, manifest.file.class_name),
            [layout.tp_size, layout.ep_size, layout.fsdp_size, layout.dp_replicate_size],
            class_name=manifest.file.class_name,
            marks=_marks(plan, resolved),
            seed=seed,
            least_layers=max(2, layout.pp_size),
        )
        small = Manifest(build_manifest(copied.model, manifest.file.name, trace=False))
        return cls(manifest, small, copied, layout)

    def resolved(self, plan: Plan) -> ResolvedPlan:
        """`plan` resolved against the copy, each of its layers treated like the layer that it stands for."""
        on_copy = resolve(plan, self.small, self.layout)
        if not _names_layers(plan):
            return on_copy
        on_large = resolve(plan, self.large, self.layout)
        return replace(
            on_copy,
            tp=self._carried(on_large.tp),
            ep=self._carried(on_large.ep),
            fsdp=dict(sorted(self._carried(on_large.fsdp).items(), key=lambda i: i[0].count("."), reverse=True)),
        )

    def _carried(self, assignments: Mapping[str, Assignment]) -> dict[str, Assignment]:
        found = {}
        for module in self.small.modules.values():
            for target in (*module.parameters, module.name):
                if (assignment := assignments.get(self.original(target))) is not None:
                    found[target] = replace(assignment, target=target)
        return found

    def original(self, name: str) -> str:
        """The name, in the large model, of what `name` in the copy stands for."""
        for stack, layers in self.copy.layers.items():
            if name.startswith(f"{stack}."):
                index, _, rest = name.removeprefix(f"{stack}.").partition(".")
                return ".".join(filter(None, (stack, str(layers[int(index)]), rest)))
        return name

    def program(self, plan: Plan) -> Program:
        """`plan` compiled for the copy. Raises ProgramError."""
        return lower(plan, self.resolved(plan), self.small)


def _with_numbers(value: Any) -> Any:
    """`value` with the numbers that JSON has no word for; a manifest has them as text."""
    if isinstance(value, Mapping):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_with_numbers, value))
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


def _names_layers(plan: Plan) -> bool:
    """Whether any rule treats layers differently by their numbers."""
    rules = (rule for kind in PLANS for rule in plan.section(kind).rules)
    return any(isinstance(segment, Indices) for rule in rules for segment in rule.key.segments)


def _marks(plan: Plan, resolved: ResolvedPlan) -> Marks:
    """What the plans say of each layer, by stack and number."""
    if not _names_layers(plan):
        return lambda name, index: None
    said: dict[str, list[tuple[str, ...]]] = {}
    for kind in PLANS:
        for target, assignment in resolved.plan(kind).items():
            parts = target.split(".")
            for position, part in enumerate(parts):
                if part.isdigit():
                    rest = ".".join(parts[position + 1 :])
                    said.setdefault(".".join(parts[: position + 1]), []).append((kind, rest, assignment.style.text))

    def mark(name: str, index: int) -> Hashable:
        return frozenset(said.get(f"{name}.{index}", ()))

    return mark
