"""Keys, names, styles and conditions at random, for property tests."""

from hypothesis import strategies as st

WORDS = st.sampled_from(["q_proj", "mlp", "w1", "a-b", "_x", "self_attn", "gate", "modèle", "1d", "null", "true"])
NUMBERS = st.integers(0, 12)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    first, length = draw(NUMBERS), draw(st.integers(0, 3))
    return f"{first}-{first + length}" if length else str(first)


@st.composite
def alternations(draw: st.DrawFn) -> str:
    words = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True))
    separator = draw(st.sampled_from([",", ", ", " ,"]))
    before, after = draw(st.sampled_from(["", "pre_", "3"])), draw(st.sampled_from(["", "_proj", "1"]))
    return f"{before}{{{separator.join(words)}}}{after}"


PORTABLE_SEGMENTS = st.one_of(st.just("*"), WORDS)
SEGMENTS = st.one_of(
    PORTABLE_SEGMENTS,
    NUMBERS.map(str),
    st.lists(ranges(), min_size=1, max_size=3).map(lambda numbers: f"[{','.join(numbers)}]"),
    alternations(),
)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join)
PLAIN_KEYS = st.lists(PORTABLE_SEGMENTS, min_size=1, max_size=5).map(".".join)
# Numbers are frequent, so that runs of them are: transformers' wildcard takes only every other one of a run.
NAMES = st.lists(st.one_of(WORDS, st.integers(0, 2).map(str)), min_size=1, max_size=5).map(".".join)
STYLES = st.sampled_from(
    ["colwise", "rowwise", "packed_colwise(split_factor=2)", "mine( a = b ,c='d e', f=\"-\")", "x-y", "null", "z()"]
)
CONDITIONS = st.sampled_from(
    ["ep_size<=8", "a % b == 0", "1 <= tp_size <= 8", "not (a > b and c != -3)", "a==1 or b == 2 and c==1"]
)
