"""All models over all layouts of four and eight ranks, with every dispatch and experts implementation: ten minutes."""

import pytest

from tests.proof.cases import sweep
from tests.proof.models import MIXTURES, MODELS
from tests.proof.test_layouts import proved

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("model", [name for name in MODELS if not name.endswith("-crowded")])
def test_every_model_over_every_layout(model: str, ranks: int) -> None:
    cases = list(sweep(ranks, (model,)))
    assert len(cases) >= (20 if model in MIXTURES else 3)
    assert proved(cases, ranks, timeout=900) == {}
