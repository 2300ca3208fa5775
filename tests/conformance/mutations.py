"""Changes of a released plan, for the truth table: every single one, and seeded ones of several rules of a block."""

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from planc.styles.registry import STYLES

Rules = Mapping[str, str]
# Old names of other styles, and one that transformers refuses in every TP plan.
_LEFT_OUT = {"colwise_rep", "rowwise_rep", "ep_dispatch_experts"}
SEVERAL_OF_EXPERTS = 25
STYLE_NAMES = tuple(name for name in STYLES if name not in _LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Mutation:
    """`changes` maps keys to their new styles, None for a rule that is dropped."""

    changes: tuple[tuple[str, str | None], ...]

    def apply(self, rules: Rules) -> dict[str, str]:
        """The changed plan."""
        changed = dict(rules)
        for key, style in self.changes:
            if style is None:
                changed.pop(key, None)
            else:
                changed[key] = style
        return changed


def single(rules: Rules, live: frozenset[str]) -> Iterator[Mutation]:
    """The released plan, each live rule dropped, each one's style swapped for each other."""
    yield Mutation(())
    for key in rules:
        if key in live:
            yield Mutation(((key, None),))
            yield from (Mutation(((key, style),)) for style in STYLE_NAMES if style != rules[key])


def several(rules: Rules, live: frozenset[str], count: int, seed: int) -> Iterator[Mutation]:
    """`count` changes of two to four rules of one block (the keys of one parent module)."""
    chance = random.Random(seed)
    blocks: dict[str, list[str]] = {}
    for key in rules:
        if key in live:
            blocks.setdefault(_block(key), []).append(key)
    choices = sorted(block for block, keys in blocks.items() if len(keys) > 1)
    for _ in range(count if choices else 0):
        keys = blocks[chance.choice(choices)]
        chosen = chance.sample(keys, chance.randint(2, min(4, len(keys))))
        yield Mutation(tuple((key, chance.choice((None, *STYLE_NAMES))) for key in chosen))


def of_experts(
    expert_rules: Rules, rules: Rules, live: frozenset[str], names: Collection[str], seed: int
) -> Iterator[Mutation]:
    """Changes of the EP plan: every single one, rules of the TP plan that move there, changes of several rules.

    `names` are the model's modules and parameters, generic: a TP rule moves with its style, with another one, and onto
    the module's weight.
    """
    chance = random.Random(seed)
    yield from single(expert_rules, live)
    for key, style in rules.items():
        if key not in live or any(key.startswith(expert) for expert in expert_rules):
            continue
        yield Mutation(((key, style),))
        yield Mutation(((key, chance.choice(STYLE_NAMES)),))
        if f"{key}.weight" in names:
            yield Mutation(((f"{key}.weight", chance.choice((style, *STYLE_NAMES))),))
    dense = {key: style for key, style in rules.items() if key in live}
    yield from several({**dense, **expert_rules}, live, SEVERAL_OF_EXPERTS, seed)


def _block(key: str) -> str:
    parts = key.split(".")
    inner = [place for place, part in enumerate(parts) if part == "*"]
    return ".".join(parts[: inner[0] + 2]) if inner else ""
