"""What is proved: which model at which layout, with which implementation of the dispatch and of the experts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from planc.layouts.layout import Axis, Layout
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.lower import lower
from planc.program.program import Program
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import resolve
from planc.syntax.arguments import plan_from_mapping
from tests.proof.models import MIXTURES, build, in_bfloat16

# transformers 5.24.0 leaves these rules out of a released plan: the norms see this rank's heads only, their gradient
# is a summand on each rank. GLM-4.5 is trained with `use_qk_norm`; its defaults aren't.
MISSING_RULES: dict[str, dict[str, str]] = {
    "glm4_moe": {
        "model.layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
        "model.layers.*.self_attn.k_norm": "replicated_with_grad_allreduce",
    },
    # It brings no plan.
    "falcon": {
        "transformer.h.*.mlp.dense_h_to_4h": "colwise",
        "transformer.h.*.mlp.dense_4h_to_h": "rowwise",
    },
}
AXES: tuple[Axis, ...] = ("pp", "dp_replicate", "fsdp", "tp", "ep")
EXPERTS_IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm")


@dataclass(frozen=True)
class Case:
    """One model at one layout.

    `config` are changed fields of the model's config, `options` those of the plan; `released` takes the model's own
    plan even where rules are missing in it. The batches have `length` tokens, every other one two fewer.
    """

    model: str
    layout: Layout
    experts: str = "eager"
    config: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    length: int = 7
    released: bool = False
    bfloat16: bool = False

    @property
    def tp_plan(self) -> dict[str, str] | None:
        """The rules to add to the model's own."""
        return None if self.released or self.layout.tp_size == 1 else MISSING_RULES.get(self.model)

    def __str__(self) -> str:
        sizes = "·".join(f"{axis}{self.layout.size(axis)}" for axis in AXES if self.layout.size(axis) > 1)
        extra = [f"{name}={value}" for name, value in (*self.config, *self.options)]
        dispatch = [self.layout.ep_implementation] if self.layout.ep_size > 1 else []
        others = [f"length={self.length}"] * (self.length != 7) + ["as released"] * self.released
        others += ["bfloat16"] * self.bfloat16
        return " ".join([self.model, sizes, *dispatch, self.experts, *extra, *others])


def layout(sizes: str, implementation: str = "auto") -> Layout:
    """`tp2·fsdp4·ep4` as a layout."""
    found: dict[str, int] = {}
    for word in sizes.split("·"):
        name = word.rstrip("0123456789")
        found[f"{name}_size"] = int(word.removeprefix(name))
    return Layout(**found, ep_implementation=implementation)


@dataclass
class Programs:
    """Compiles each model once a layout; the programs travel to the ranks."""

    _manifests: dict[tuple[Any, ...], Manifest] = field(default_factory=dict)
    _programs: dict[tuple[Any, ...], Program] = field(default_factory=dict)

    def of(self, case: Case) -> Program:
        key = (case.model, case.config, case.layout, case.options, case.released, case.bfloat16)
        if key not in self._programs:
            model = (case.model, case.config, case.bfloat16)
            if model not in self._manifests:
                built = build(case.model, **dict(case.config))
                built = in_bfloat16(built) if case.bfloat16 else built
                self._manifests[model] = Manifest(build_manifest(built, case.model, trace=False))
            self._programs[key] = compiled(self._manifests[model], case)
        return self._programs[key]


def compiled(manifest: Manifest, case: Case) -> Program:
    """The program of the model's own plan at the layout of `case`."""
    sizes = {f"{axis}_size": case.layout.size(axis) for axis in AXES}
    mapping = {**sizes, "ep_implementation": case.layout.ep_implementation, **dict(case.options)}
    mapping |= {"tp_plan": case.tp_plan} if case.tp_plan else {}
    plan, found = plan_from_mapping(mapping)
    assert plan is not None and not found, found
    return lower(plan, resolve(plan, manifest, derive_layout(plan)), manifest)


def implementations(sizes: str) -> tuple[str, ...]:
    """The implementations that a layout with experts allows (`auto` trains as `all_to_all`)."""
    found = layout(sizes)
    return ("all_to_all", "all_reduce") if found.ep_size == found.tp_size else ("all_to_all",)


# The layouts of the documents, by the number of ranks. `sweep` goes through all of them.
WITH_EXPERTS = {
    4: ("tp2·fsdp2·ep4", "tp2·ep2·fsdp2", "fsdp4·ep2", "tp4·ep4"),
    8: ("tp4·fsdp2·ep4", "tp1·fsdp8·ep4", "tp2·fsdp4·ep4", "tp2·fsdp4·ep8", "tp8·ep8", "tp2·dp_replicate2·fsdp2·ep4"),
}
WITHOUT_EXPERTS = {
    4: ("tp4", "fsdp4", "tp2·fsdp2", "dp_replicate2·fsdp2"),
    8: ("tp2·fsdp4", "tp2·dp_replicate2·fsdp2", "fsdp8"),
}


def sweep(ranks: int, models: tuple[str, ...]) -> Iterator[Case]:
    """Every model over every layout of `ranks` ranks, each dispatch that it allows, each experts implementation."""
    for model in models:
        for sizes in WITHOUT_EXPERTS[ranks]:
            yield Case(model, layout(sizes))
        if model not in MIXTURES:
            continue
        for sizes in WITH_EXPERTS[ranks]:
            for implementation in implementations(sizes):
                for experts in EXPERTS_IMPLEMENTATIONS:
                    yield Case(model, layout(sizes, implementation), experts)
