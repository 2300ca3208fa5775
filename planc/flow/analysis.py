"""A plan judged by the flow of its model: every kind of layer once, and again where the plan treats layers apart."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from planc.flow.backward import Backward, backward
from planc.flow.forward import Forward, forward
from planc.flow.plan import PlacedModel, Ranks, ranks_for
from planc.flow.problems import Problem, Unfollowed
from planc.flow.types import Wrong
from planc.layouts.layout import Layout
from planc.model.dataflow import Flow
from planc.model.manifest import Manifest
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.resolve.tied import acting_style
from planc.styles.custom import is_not_known
from planc.styles.registry import create
from planc.styles.style import Style


@dataclass(frozen=True)
class Judgement:
    """One run over the flow. `layers` maps each layer that was judged to all layers that the plan treats like it."""

    model: PlacedModel
    forward: Forward
    backward: Backward
    layers: Mapping[str, tuple[str, ...]]

    @property
    def problems(self) -> list[Problem]:
        """Faults of the forward, then of the gradients."""
        return [*self.forward.problems, *self.backward.problems]

    @property
    def unfollowed(self) -> list[Unfollowed]:
        """What the pass couldn't follow."""
        return self.forward.unfollowed

    def alike(self, name: str) -> tuple[str, ...]:
        """The names in other layers that a name stands for, itself among them."""
        prefix = name
        while prefix:
            if prefix in self.layers:
                return tuple(layer + name[len(prefix) :] for layer in self.layers[prefix])
            prefix = prefix.rpartition(".")[0]
        return (name,)


@dataclass(frozen=True)
class FlowAnalysis:
    """All runs. `flow` is None where the manifest has no dataflow; `foreign` are targets of styles unknown inside."""

    flow: Flow | None
    judgements: tuple[Judgement, ...] = ()
    foreign: tuple[str, ...] = ()
    styles: Mapping[str, Style] = field(default_factory=dict)
    manifest: Manifest | None = None
    layout: Layout | None = None
    opaque: frozenset[str] = frozenset()

    @property
    def is_judged(self) -> bool:
        """Whether the flow was followed: it says of the TP plan what is wrong, and what it doesn't know."""
        return bool(self.judgements)

    @cached_property
    def problems(self) -> list[tuple[Problem, Judgement]]:
        """Every fault with the run that found it, those of layers alike once."""
        return [(problem, judgement) for judgement in self.judgements for problem in judgement.problems]

    @cached_property
    def hidden(self) -> int:
        """How many values of one run follow from a fault, so that no other fault shows there: the most of all runs."""
        return max((sum(isinstance(kind, Wrong) for kind in j.forward.types) for j in self.judgements), default=0)

    @cached_property
    def changed(self) -> list[tuple[Problem, Judgement]]:
        """Every in-place change of what a style handed on, with the run that found it: no faults of types."""
        return [(problem, judgement) for judgement in self.judgements for problem in judgement.forward.changed]

    def with_styles(self, changes: Mapping[str, Style | None]) -> "FlowAnalysis":
        """The same model with some targets under other styles (None: no rule)."""
        assert self.flow is not None and self.manifest is not None and self.layout is not None
        styles = {**self.styles, **{name: style for name, style in changes.items() if style is not None}}
        for name, style in changes.items():
            if style is None:
                styles.pop(name, None)
        return _analyse(self.flow, self.manifest, self.layout, styles, self.foreign, self.opaque)


def analyse(manifest: Manifest, layout: Layout, resolved: ResolvedPlan) -> FlowAnalysis:
    """Judge the TP plan, and the EP plan where its groups are the same.

    Raises nothing on a flow that can't be read: then there is none.
    """
    flow = read_flow(manifest)
    if flow is None or layout.tp_size <= 1:
        return FlowAnalysis(flow)
    styles: dict[str, Style] = {}
    foreign: list[str] = []
    plan = judged_plan(resolved, manifest)
    for name, assignment in plan.items():
        style = acting_style(assignment, plan, manifest)
        if style is not None and is_not_known(style):
            foreign.append(name)
        # What is no style, or none with these arguments, another rule says (PL106, PL902, PL108).
        elif style is not None and not _objects(style, name, manifest):
            styles[name] = style
    return _analyse(flow, manifest, layout, styles, tuple(foreign), dispatching(resolved, manifest))


def judged_plan(resolved: ResolvedPlan, manifest: Manifest) -> Mapping[str, Assignment]:
    """The rules that act among the ranks of one TP group, which share their batch.

    With `ep_size == tp_size` an EP group is a TP group (the axis is the last of both meshes), and rules of the EP plan
    are styles like any other there. In larger EP groups values vary from rank to rank, which isn't followed.
    """
    if resolved.layout.ep_size != resolved.layout.tp_size:
        return resolved.tp
    closed = dispatching(resolved, manifest)
    if not closed:
        return resolved.tp  # an EP plan that dispatches nowhere isn't applied, as PL216 says
    # Only a parameter can be in both: an EP rule that does nothing to it leaves it to its module's TP rule.
    acting = {n: a for n, a in resolved.ep.items() if n not in resolved.tp or _places(a, manifest)}
    return {**resolved.tp, **{name: a for name, a in acting.items() if not is_inside(name, closed)}}


def dispatching(resolved: ResolvedPlan, manifest: Manifest) -> frozenset[str]:
    """The modules whose experts are reached by dispatch: closed to the flow, whole values stay whole there."""
    return frozenset(
        name
        for name, a in resolved.ep.items()
        if (style := create(a.style, "ep")) and _dispatches(style, name, manifest)
    )


def is_inside(name: str, closed: Collection[str]) -> bool:
    """Whether `name` is one of the modules `closed`, or in one of them."""
    while name and name not in closed:
        name = name.rpartition(".")[0]
    return bool(name)


def _places(assignment: Assignment, manifest: Manifest) -> bool:
    style = create(assignment.style, "ep")
    return style is not None and style.placement(manifest.parameters[assignment.target][1]) is not None


def read_flow(manifest: Manifest) -> Flow | None:
    """The dataflow of a manifest, if it has one that can be read."""
    if not manifest.file.flows:
        return None
    try:
        return Flow.from_json(manifest.file.flows[0])
    except ValueError:
        return None


def _objects(style: Style, name: str, manifest: Manifest) -> bool:
    """Whether another rule already says that the style can't stand here."""
    if name in manifest.parameters:
        module, entry = manifest.parameters[name]
        return style.parameter_objection(module, entry) is not None
    return name in manifest.modules and style.objection(manifest.modules[name]) is not None


def _dispatches(style: Style, name: str, manifest: Manifest) -> bool:
    return name in manifest.modules and style.type(manifest.modules[name]).dispatches


def _analyse(
    flow: Flow,
    manifest: Manifest,
    layout: Layout,
    styles: Mapping[str, Style],
    foreign: tuple[str, ...],
    opaque: frozenset[str],
) -> FlowAnalysis:
    ranks = _ranks(manifest, layout, styles)
    # A style on a parameter alone is one on whatever its module computes.
    closed = frozenset(name if name in manifest.modules else name.rpartition(".")[0] for name in foreign)
    judgements = tuple(
        _judge(flow, manifest, styles, ranks, variant, opaque, closed)
        for variant in _variants(flow, styles, opaque | closed)
    )
    return FlowAnalysis(flow, judgements, foreign, styles, manifest, layout, opaque)


def _judge(
    flow: Flow,
    manifest: Manifest,
    styles: Mapping[str, Style],
    ranks: Ranks,
    variant: Mapping[str, tuple[str, ...]],
    opaque: frozenset[str],
    foreign: frozenset[str],
) -> Judgement:
    renamed = {recorded: layers[0] for recorded, layers in variant.items()}
    model = PlacedModel(manifest, styles, ranks, renamed, opaque, foreign)
    first = forward(flow, model)
    layers = {group[0]: group for group in variant.values()}
    return Judgement(model, first, backward(first, model), layers)


def _ranks(manifest: Manifest, layout: Layout, styles: Mapping[str, Style]) -> Ranks:
    """The ranks at which one of the sharded parameters ends short are looked at too."""
    shapes = {manifest.parameters[name][1].shape for name in styles if name in manifest.parameters}
    return ranks_for(layout.tp_size, {size for shape in shapes for size in shape})


def _variants(
    flow: Flow, styles: Mapping[str, Style], opaque: frozenset[str]
) -> Iterator[Mapping[str, tuple[str, ...]]]:
    """For each run: the layers that stand for each recorded one, all treated alike by the plan."""
    signatures = _signatures(flow, styles, opaque)
    groups: dict[str, list[tuple[str, ...]]] = {}
    for kind in flow.kinds:
        by_signature: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for layer in kind.alike:
            by_signature[tuple(signatures.get(layer, ()))].append(layer)
        groups[kind.module] = [tuple(layers) for layers in by_signature.values()]
    for number in range(max(map(len, groups.values()), default=1)):
        yield {recorded: found[min(number, len(found) - 1)] for recorded, found in groups.items()}


def _signatures(
    flow: Flow, styles: Mapping[str, Style], opaque: frozenset[str]
) -> Mapping[str, list[tuple[object, ...]]]:
    """What the plan says in each layer, by layer."""
    layers = {layer for kind in flow.kinds for layer in kind.alike}
    found: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for name, style in styles.items():
        if (layer := _layer(name, layers)) is not None:
            found[layer].append((name[len(layer) :], style.name, *sorted(style.values.items())))
    for name in opaque:
        if (layer := _layer(name, layers)) is not None:
            found[layer].append((name[len(layer) :],))
    return found


def _layer(name: str, layers: set[str]) -> str | None:
    while name:
        if name in layers:
            return name
        name = name.rpartition(".")[0]
    return None
