"""Each style as a typed function, and the operations it lowers to, agree."""

import pytest

from planc.ir.operations import (
    DispatchExperts,
    DivideInput,
    LookupShard,
    RunDistributed,
    RunLocal,
    SumGradient,
    SumOutputGradient,
    TransformInput,
    TransformOutput,
)
from planc.layouts.layout import Layout
from planc.layouts.placement import Partial, Replicate
from planc.styles import registry
from planc.styles.style import Lowering
from tests.styles.describing import MODULES, described, manifest_of

USES = [
    (name, kind)
    for name, cls in registry.STYLES.items()
    for kind, module in MODULES.items()
    if cls().objection(described(module)) is None
]


@pytest.mark.parametrize(("name", "kind"), USES)
def test_type_and_operations_agree(name: str, kind: str) -> None:
    module = described(MODULES[kind])
    style = registry.STYLES[name]()
    type_ = style.type(module)
    to = Lowering(manifest_of(module, qk_rope_head_dim=2), Layout(tp_size=2, ep_size=2), "tp")
    operations = list(style.lower_module(module, to))

    inputs = [op for op in operations if isinstance(op, TransformInput)]
    moves = type_.input != type_.computes or (type_.input_gradient == Partial() and type_.input == Replicate())
    expected = type_.arguments if moves and not type_.divides_input else ()
    assert tuple(op.argument for op in inputs) == expected
    assert {(op.source, op.target, op.gradient) for op in inputs} <= {
        (type_.input, type_.computes, type_.input_gradient)
    }

    outputs = [op for op in operations if isinstance(op, TransformOutput)]
    assert bool(outputs) == (type_.yields != type_.output and not type_.distributed)
    assert {(op.source, op.target) for op in outputs} <= {(type_.yields, type_.output)}

    kinds = {type(op) for op in operations}
    assert (RunLocal in kinds) == type_.runs_local
    assert (RunDistributed in kinds) == type_.distributed
    assert (LookupShard in kinds) == type_.lookup
    assert (SumGradient in kinds) == (type_.sums_parameter_gradients and bool(module.entry.parameters))
    assert (SumOutputGradient in kinds) == type_.sums_output_gradient
    assert (DivideInput in kinds) == type_.divides_input
    assert (DispatchExperts in kinds) == type_.dispatches


def test_the_types_of_real_use_are_all_covered() -> None:
    assert {name for name, _ in USES} == set(registry.STYLES)
