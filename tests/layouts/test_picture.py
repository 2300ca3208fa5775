"""The rank picture: the one of the documents, and what holds for every layout."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from planc.layouts.layout import Layout
from planc.layouts.picture import picture
from planc.layouts.render_json import render_json
from planc.layouts.render_svg import render_svg
from planc.layouts.render_text import render_text

# `transformers/distributed/expert_parallel.py` 5.24.0 draws the row of ep_size=4; eight ranks, eight experts.
DOCUMENTED = """\
rank         0      1       2      3       4      5       6      7
batch       [====B0====]   [====B1====]   [====B2====]   [====B3====]     one batch per TP pair
tp           0      1       0      1       0      1       0      1
ep_size=2   E0-3   E4-7    E0-3   E4-7    E0-3   E4-7    E0-3   E4-7     group = a TP pair,  efsdp_size=4
ep_size=4   E0E1   E2E3    E4E5   E6E7    E0E1   E2E3    E4E5   E6E7     group = two pairs,  efsdp_size=2
ep_size=8   E0     E1      E2     E3      E4     E5      E6     E7       group = all ranks,  efsdp_size=1
"""
PICTURES = {
    "eight-ranks": (Layout(tp_size=2, fsdp_size=4, ep_size=4), 8, None),
    "dense": (Layout(tp_size=4), None, None),
    "hsdp-nodes": (Layout(dp_replicate_size=2, fsdp_size=2, tp_size=2, ep_size=4), 16, 4),
    "pipeline": (Layout(pp_size=2, tp_size=2), None, 2),
    "256-ranks": (Layout(fsdp_size=32, tp_size=8, ep_size=64), 256, 8),
    "one-rank": (Layout(), None, None),
}


def cells(line: str) -> list[str]:
    """The name of a row and its cells."""
    words = re.split(r"\s{2,}", line.split("one batch")[0].split("group =")[0].strip())
    return [re.sub(r"^\[=*|=*\]$", "", word) for word in words]


@pytest.mark.parametrize("ep_size", [2, 4, 8])
def test_the_picture_of_the_documents(ep_size: int) -> None:
    drawn = render_text(picture(Layout(tp_size=2, fsdp_size=4, ep_size=ep_size), num_experts=8))
    found = [cells(line) for line in drawn.splitlines()]
    expected = {row[0]: row for row in map(cells, DOCUMENTED.splitlines())}
    wanted = [expected[name] for name in ("rank", "tp", f"ep_size={ep_size}")]
    assert [row for row in wanted if row not in found] == []
    batches = next(row for row in found if row[0] == "batch")
    assert [re.sub(r"\W", "", word) for word in " ".join(batches[1:]).split()] == ["B0", "B1", "B2", "B3"]
    assert f"efsdp_size={8 // ep_size}" in drawn


@pytest.mark.parametrize("name", PICTURES)
def test_as_text(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(Path(__file__).parent / "pictures" / f"{name}.txt", render_text(picture(*PICTURES[name])))


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_everything_is_drawn_once_within_the_width(name: str, width: int) -> None:
    layout, experts, per_node = PICTURES[name]
    drawn = render_text(picture(layout, experts, per_node), width, everything=True)
    ranks = [int(word) for line in drawn.splitlines() if line.startswith("rank ") for word in line.split()[1:]]
    assert ranks == list(range(layout.world_size))
    # A group of ranks may not fit at all: then a line holds a single one.
    narrow = 10 + max(len(cell) for line in drawn.splitlines() for cell in line.split()) + len("dp_replicate")
    assert all(len(line) <= max(width, narrow) for line in drawn.split("\n\n")[1].splitlines())


def test_a_long_picture_says_what_it_leaves_out() -> None:
    drawn = render_text(picture(Layout(fsdp_size=128, tp_size=8, ep_size=64), 256))
    left_out = re.search(r"ranks (\d+) to (\d+) go on", drawn)
    shown = [int(word) for line in drawn.splitlines() if line.startswith("rank ") for word in line.split()[1:]]
    assert left_out is not None and len(drawn.splitlines()) < 100
    assert sorted([*shown, *range(int(left_out[1]), int(left_out[2]) + 1)]) == list(range(1024))


@pytest.mark.parametrize("name", PICTURES)
def test_as_json(name: str) -> None:
    layout, experts, per_node = PICTURES[name]
    document = json.loads(render_json(picture(layout, experts, per_node)))
    assert (document["format_version"], document["layout"]) == (1, layout.to_json())
    ranks = document["ranks"]
    assert [rank["rank"] for rank in ranks] == list(range(layout.world_size))
    # The ranks of an expert group hold every expert once; those of a TP group share a batch.
    for copy in {(r["pp"], r["dp_replicate"], r["efsdp"]) for r in ranks}:
        group = [r for r in ranks if (r["pp"], r["dp_replicate"], r["efsdp"]) == copy]
        assert [r["ep"] for r in group] == list(range(layout.ep_size))
        if experts is not None:
            held = [e for r in group for e in range(r["experts"][0], r["experts"][1] + 1)]
            assert held == list(range(experts))
    by_batch = {
        batch: [r["tp"] for r in ranks if (r["pp"], r["batch"]) == batch]
        for batch in {(r["pp"], r["batch"]) for r in ranks}
    }
    assert len(by_batch) == layout.dp_size * layout.pp_size
    assert all(tp == list(range(layout.tp_size)) for tp in by_batch.values())


@pytest.mark.parametrize("name", PICTURES)
def test_as_svg(name: str) -> None:
    layout, experts, per_node = PICTURES[name]
    root = ElementTree.fromstring(render_svg(picture(layout, experts, per_node)))
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert {str(rank) for rank in range(layout.world_size)} <= set(texts)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{space}rect"):
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


def test_experts_must_divide() -> None:
    with pytest.raises(ValueError, match="12 experts don't divide by ep_size=8"):
        picture(Layout(fsdp_size=8, ep_size=8), 12)
