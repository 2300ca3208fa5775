"""The grammars of keys, styles and requirements: `*.lark` files that the wheel carries."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from planc.syntax.wording import either

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from lark import Lark

Grammar = Literal["key", "style", "requirement"]


class Leaf(str):
    """A token: its text, its terminal in the grammar, and its offsets in the whole text."""

    kind: str
    start: int
    end: int

    @classmethod
    def of(cls, text: str, kind: str, start: int, end: int) -> "Leaf":
        leaf = cls(text)
        leaf.kind, leaf.start, leaf.end = kind, start, end
        return leaf


@dataclass(frozen=True, slots=True)
class Branch:
    """What a rule of the grammar matched; optional parts that are absent have no child."""

    kind: str
    children: tuple["Leaf | Branch", ...]
    start: int
    end: int

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(child for child in self.children if isinstance(child, Leaf))

    @property
    def branches(self) -> tuple["Branch", ...]:
        return tuple(child for child in self.children if isinstance(child, Branch))


class SyntaxFaultError(Exception):
    """Where a text leaves its grammar: `start` and `end` of the offending token, and in words what may stand there."""

    def __init__(self, start: int, end: int, expected: tuple[str, ...]) -> None:
        super().__init__(start, end, expected)
        self.start, self.end, self.expected = start, end, expected

    @property
    def wanted(self) -> str:
        return either(self.expected)


def parse(grammar: Grammar, text: str, words: Mapping[str, str]) -> Leaf | Branch:
    """The tree of `text`.

    `words` names the grammar's terminals, `$END` among them, for people; several terminals may share a name. Raises
    `SyntaxFaultError`.
    """
    from lark.exceptions import UnexpectedInput

    parser = _parser(grammar)
    try:
        tree = parser.parse(text)
    except UnexpectedInput:
        raise _fault(parser, text, words) from None
    return _own_tree(tree)


def _own_tree(node: Any) -> Leaf | Branch:
    """lark's tree with types: no child is ever None or of unknown kind."""
    if isinstance(node, str):
        token: Any = node
        return Leaf.of(node, token.type, token.start_pos, token.end_pos)
    return Branch(str(node.data), tuple(map(_own_tree, node.children)), node.meta.start_pos, node.meta.end_pos)


def _fault(parser: "Lark", text: str, words: Mapping[str, str]) -> SyntaxFaultError:
    """The first fault of `text`, found token by token, so that what may stand there is exact."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    interactive: Any = parser.parse_interactive(text)
    start = end = len(text)
    try:
        interactive.exhaust_lexer()
        interactive.feed_eof()
    except UnexpectedCharacters as error:
        start, end = error.pos_in_stream or 0, (error.pos_in_stream or 0) + 1
    except UnexpectedToken as error:
        if error.token.type != "$END":
            start, end = error.token.start_pos, error.token.end_pos
    accepted = interactive.accepts()
    return SyntaxFaultError(start, end, tuple(dict.fromkeys(words[t] for t in words if t in accepted)))


@cache
def _parser(grammar: Grammar) -> "Lark":
    from lark import Lark

    return Lark(_file(grammar).read_text("utf-8"), parser="lalr", maybe_placeholders=False, propagate_positions=True)


def _file(grammar: Grammar) -> "Traversable":
    """The grammar in the installed wheel, or at the top of the repository in an editable install."""
    from importlib.resources import files

    installed = files("planc") / "grammars" / f"{grammar}.lark"
    return installed if installed.is_file() else Path(__file__).parents[2] / "grammars" / f"{grammar}.lark"
