"""PL303."""

from collections.abc import Iterator
from dataclasses import replace

from planc.check.packed_cuts import PackedCut, packed_cuts
from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity


@define("PL303", "packed-cut-as-one-block", Severity.ERROR)
class PackedCutAsOne(Rule):
    """Looks for fused weights of several parts that are cut as if they were one.

    A weight `[gate | up]` cut into contiguous blocks gives one rank the gate and the other the up projection. A model
    that takes halves of what it gets runs then, and its logits are wrong; one that splits by the widths of its config
    stops in the split. `packed_colwise` takes each rank's slice of every part.
    Parts that alternate (per head, as in GPT-NeoX) may be cut as one block, and a fused projection that is gathered
    too. Packing is a fact of the model, watched in a run, not guessed from a name.

    Example, on Phi-3:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: packed_colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for cut in packed_cuts(context):
            parts = len(cut.packing.parts)
            if cut.packing.layout == "blocks" and parts > 1 and cut.parts != parts:
                yield self._cut(cut, context)
            elif cut.packing.layout == "interleaved" and cut.parts > 1:
                yield self._strided(cut)

    def _cut(self, cut: PackedCut, context: CheckContext) -> Diagnostic:
        parts = cut.packing.parts
        layout = " + ".join(map(str, parts))
        how = "one block" if cut.parts == 1 else f"{cut.parts} parts"
        style = "packed_rowwise" if "rowwise" in cut.rule.style.name else "packed_colwise"
        new = style if len(parts) == 2 else f"{style}(split_factor={len(parts)})"
        is_even = len(set(parts)) == 1
        helps = [f"`{new}` takes each rank's slice of every part"]
        if not is_even:
            helps = [
                "the parts differ in width, so no style cuts them: `colwise_gather_output` gathers the output again"
            ]
        fix = None
        own = context.own.plan(cut.rule.plan).get(cut.targets[0])
        if own is not None and own.style.text != cut.rule.style.text:
            new, is_even = own.style.text, True
            helps.insert(0, f"`{new}`, as in the model's own plan")
        if is_even and cut.rule.origin == "user":
            fix = Fix(f"write `{new}`", (Edit(cut.rule.style.span, new),))
        name = cut.targets[0].removesuffix(".weight").rpartition(".")[2]
        return self.code.found(
            f"`{name}` holds {len(parts)} packed parts ({layout}), and `{cut.rule.style.text}` cuts it as {how}",
            span=cut.rule.style.span if cut.rule.origin == "user" else cut.rule.span,
            label=f"{counted(len(cut.targets), 'parameter')}; ranks would get features of the wrong part",
            labels=size_labels(context, "tp_size"),
            key=cut.rule.key.text,
            targets=cut.targets[:3],
            target_count=len(cut.targets),
            notes=(_consequence(len(set(parts)) == 1),),
            help=tuple(helps),
            fix=fix,
        )

    def _strided(self, cut: PackedCut) -> Diagnostic:
        name = cut.targets[0].removesuffix(".weight").rpartition(".")[2]
        plain = cut.rule.style.name.removeprefix("packed_")
        found = self.code.found(
            f"the parts of `{name}` alternate, and `{cut.rule.style.text}` takes them for {cut.parts} blocks",
            span=cut.rule.style.span,
            label=f"{counted(len(cut.targets), 'parameter')}, a part every {cut.packing.group or 1} features",
            key=cut.rule.key.text,
            targets=cut.targets[:3],
            target_count=len(cut.targets),
            help=(f"`{plain}` cuts whole groups",),
        )
        if cut.rule.origin == "user":
            found = replace(found, fix=Fix(f"write `{plain}`", (Edit(cut.rule.style.span, plain),)))
        return found


def _consequence(is_even: bool) -> str:
    """What a forward makes of features of the wrong part."""
    if is_even:
        return "a model that takes equal parts of what it gets runs, with wrong results; one with fixed widths stops"
    return "the forward stops where it splits by these widths; where it doesn't, its results are wrong"
