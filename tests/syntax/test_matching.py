"""Which names a key names: transformers' wildcard positions, and planc's sets."""

import itertools
import re

import pytest
from hypothesis import assume, given

from planc.syntax.matching import generic_name, key_matches
from planc.syntax.plan import Indices, Names
from tests.syntax.helpers import key
from tests.syntax.strategies import KEYS, NAMES, PLAIN_KEYS


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("model.layers.*.mlp", "model.layers.17.mlp", True),
        ("model.layers.*.mlp", "model.layers.mlp", False),
        ("model.layers.*.mlp", "model.layers.a.mlp", False),
        ("model.layers.*.mlp", "model.layers.3.mlp.up_proj", False),
        ("layers.*", "layers.3", True),
        ("layers.*", "model.layers.3", False),
        ("model.layers.3.mlp", "model.layers.3.mlp", True),
        ("model.layers.3.mlp", "model.layers.13.mlp", False),
        ("model.layers.[0-2,5].mlp", "model.layers.5.mlp", True),
        ("model.layers.[0-2,5].mlp", "model.layers.4.mlp", False),
        ("a.{b,c}_d", "a.c_d", True),
        ("a.{b,c}_d", "a.b,c_d", False),
        # transformers replaces every other number of a run, and never a leading one.
        ("a.*.b", "a.1.b", True),
        ("a.*.*.b", "a.0.1.b", False),
        ("a.*.1.b", "a.0.1.b", True),
        ("a.*.1.b", "a.0.2.b", False),
        ("a.*.[1-2].*.b", "a.0.2.7.b", True),
        ("*.b", "0.b", False),
        ("0.b", "0.b", True),
        ("0.*.b", "0.1.b", True),
        ("a.b", "aXb", False),
        ("a.[0-9]", "a.007", False),
        ("a.[0-9]", "a." + "9" * 5000, False),
    ],
)
def test_examples(text: str, name: str, matches: bool) -> None:
    assert key_matches(key(text), name) is matches


@given(PLAIN_KEYS, NAMES)
def test_a_portable_key_is_looked_up_as_transformers_does(text: str, name: str) -> None:
    assert key_matches(key(text), name) == (text == generic_name(name))


@given(NAMES)
def test_a_name_is_matched_by_its_generic_name(name: str) -> None:
    generic = generic_name(name)
    assert key_matches(key(generic), name)
    assert key(generic).is_portable


@given(NAMES, NAMES)
def test_a_concrete_name_as_a_key_is_that_name_alone(text: str, name: str) -> None:
    assert key_matches(key(text), text)
    assert key_matches(key(text), name) == (text == name)


@given(KEYS, NAMES)
def test_a_set_is_the_union_of_its_members(text: str, name: str) -> None:
    """Index sets and alternations written out as single keys match the same names."""
    members = []
    for segment in key(text).segments:
        if isinstance(segment, Names):
            members.append(list(segment.alternatives))
        elif isinstance(segment, Indices):
            members.append([str(i) for first, last in segment.ranges for i in range(first, last + 1)])
        else:
            members.append(["*"])
    choices = list(itertools.islice(itertools.product(*members), 500))
    assume(len(choices) < 500)
    assert key_matches(key(text), name) == any(key_matches(key(".".join(choice)), name) for choice in choices)


@given(NAMES)
def test_generic_name_is_that_of_transformers(name: str) -> None:
    """The pattern of transformers 5.24.0, `distributed/parallel_utils.py`, written out."""
    assert generic_name(name) == re.sub(r"\.\d+(\.|$)", lambda m: ".*" + m.group(1), name)
