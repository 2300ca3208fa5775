"""What the user may have meant by a key that names nothing."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from planc.check.nearest import edit_distance, nearest
from planc.check.rule import CheckContext
from planc.syntax.plan import Indices, Key, Names, PlanRule, Wildcard

# Nobody reads on, and each explanation looks at every name of the model: the rest is only counted.
MOST_EXPLAINED = 30
STAR = "`*` is one layer number, not a glob"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Keys that name something, best first; `is_certain` when the first one is what was meant.

    `is_prefix`: all that is wrong is how the key begins, which `label` says.
    """

    keys: tuple[str, ...] = ()
    label: str = ""
    notes: tuple[str, ...] = ()
    is_certain: bool = False
    is_prefix: bool = False


def suggest(rule: PlanRule, context: CheckContext) -> Suggestion:
    """The best explanation of a dead rule, the most certain kind first."""
    for explain in _EXPLANATIONS:
        found = explain(rule, context)
        if found is not None:
            return found
    return Suggestion()


def _layer_out_of_range(rule: PlanRule, context: CheckContext) -> Suggestion | None:
    """`model.layers.99.mlp`: the name is right, the number isn't."""
    for position, segment in enumerate(rule.key.segments):
        if not isinstance(segment, Indices):
            continue
        pattern = _pattern(rule.key, partial(_number_at, position))
        numbers = [int(m[1]) for names in context.names.values() for name in names if (m := pattern.fullmatch(name))]
        if numbers:
            first, last = min(numbers), max(numbers)
            return Suggestion(label=f"there is no such number here: the model has {first} to {last}")
    return None


def _number_at(position: int, at: int, text: str) -> str:
    return r"(\d+)" if at == position else text.replace(r"\*", r"\d+")


def _prefix(rule: PlanRule, context: CheckContext) -> Suggestion | None:
    """`layers.*.mlp` for `model.layers.*.mlp`, or another model's prefix."""
    written = rule.key.text.split(".")
    segments = expand(rule.key)[0].split(".")
    for start in range(len(segments) - 1):
        tail = ".".join(segments[start:])
        ends = [name for name in context.names if name.endswith(f".{tail}") or name == tail]
        if ends:
            label = f"the model has no `{'.'.join(segments[: start + 1])}`" if start else "the prefix is missing"
            rest = ".".join(written[start:])
            keys = [name.removesuffix(tail) + rest for name in sorted(ends, key=lambda name: (name.count("."), name))]
            return Suggestion(tuple(keys[:3]), label, is_certain=len(ends) == 1, is_prefix=True)
    return None


def missing_prefix(key: Key, context: CheckContext) -> str | None:
    """The shortest name that, put before `key`, makes it name something: `language_model`; None where there is none."""
    text = expand(key)[0]
    found = [name.removesuffix(f".{text}") for name in context.names if name.endswith(f".{text}")]
    return min(found, key=lambda prefix: (prefix.count("."), prefix), default=None)


def _parameter_suffix(rule: PlanRule, context: CheckContext) -> Suggestion | None:
    """`experts.gate_up_proj.weight`, where `gate_up_proj` is itself the parameter."""
    owner, _, last = rule.key.text.rpartition(".")
    if owner not in context.names or "*" in last:
        return None
    name = context.names[owner][0]
    if name in context.manifest.parameters:
        return Suggestion((owner,), f"`{owner}` is itself a parameter: it has no `{last}`", is_certain=True)
    children = [other for other in context.names if other.rpartition(".")[0] == owner]
    close = tuple(f"{owner}.{word}" for word in nearest(last, [child.rpartition(".")[2] for child in children]))
    if last in ("weight", "bias"):
        return Suggestion((owner, *close), f"`{owner}` has no parameter `{last}`")
    return Suggestion(close, is_certain=len(close) == 1) if close else None


def _glob(rule: PlanRule, context: CheckContext) -> Suggestion | None:
    """`mlp.*`, `*.up_proj`: a `*` where the model has no number."""
    if not any(isinstance(segment, Wildcard) for segment in rule.key.segments):
        return None
    pattern = _pattern(rule.key, lambda _at, text: r"[^.]+" if text == r"\*" else text)
    deep = _pattern(rule.key, lambda _at, text: r"[^.]+(?:\.[^.]+)*" if text == r"\*" else text)
    for meant in (pattern, deep):
        names = [name for name in context.names if meant.fullmatch(name)]
        if names:
            return _alternation(names, rule, context)
    return None


def _alternation(names: list[str], rule: PlanRule, context: CheckContext) -> Suggestion:
    """Of the names that a glob would match, those that the model gives this style too, drawn together."""
    styles = {own.key.text: own.style.name for own in context.own.rules[rule.plan]}
    same = [name for name in names if styles.get(name) == rule.style.name]
    other = [name for name in names if styles.get(name, rule.style.name) != rule.style.name]
    others = [f"`{name}` is {styles[name]}" for name in other]
    notes = (f"in the model's own plan {', '.join(others[:4])}",) if others else ()
    weights = [name for name in names if _has_parameters(name, context)]
    return Suggestion(tuple(braces(same or weights or names))[:3], STAR, notes)


def _has_parameters(name: str, context: CheckContext) -> bool:
    concrete = context.names[name][0]
    return concrete in context.manifest.parameters or bool(context.manifest.modules[concrete].parameters)


def _misspelt(rule: PlanRule, context: CheckContext) -> Suggestion | None:
    """A slip of the pen: the nearest generic names; else what the model has in that place."""
    texts = expand(rule.key)
    found = sorted((distance, name) for text in texts for distance, name in _close(text, context))
    is_certain = len(texts) == 1 and bool(found) and [d for d, _ in found].count(found[0][0]) == 1
    keys = tuple(dict.fromkeys(name for _, name in found)) or _same_last_segment(texts[0], context)
    return Suggestion(keys[:3], notes=_below(texts[0], context), is_certain=is_certain)


def _close(text: str, context: CheckContext) -> Iterator[tuple[int, str]]:
    """Names that differ from `text` by a few letters, not counting the beginning that both share."""
    segments = text.split(".")
    for name in context.names:
        parts = name.split(".")
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(segments, parts, strict=False)))
        left, right = ".".join(segments[shared:]), ".".join(parts[shared:])
        most = max(2, len(left) // 3)
        if abs(len(left) - len(right)) <= most and (distance := edit_distance(left, right)) <= most < len(left):
            yield distance, name


def _same_last_segment(text: str, context: CheckContext) -> tuple[str, ...]:
    last = text.rpartition(".")[2]
    names = [name for name in context.names if name.rpartition(".")[2] == last]
    return tuple(sorted(names, key=lambda name: edit_distance(name, text)))


def _below(text: str, context: CheckContext) -> tuple[str, ...]:
    """What the deepest part of `text` that does exist holds."""
    owner = text.rpartition(".")[0]
    while owner and owner not in context.names:
        owner = owner.rpartition(".")[0]
    children = [name.rpartition(".")[2] for name in context.names if owner and name.rpartition(".")[0] == owner]
    return (f"`{owner}` holds {', '.join(f'`{child}`' for child in children[:8])}",) if children else ()


def _pattern(key: Key, change: Callable[[int, str], str]) -> re.Pattern[str]:
    """A pattern over names, from the key's segments; `change` gets each segment's place and pattern."""
    parts = []
    for at, segment in enumerate(key.segments):
        if isinstance(segment, Names):
            text = f"(?:{'|'.join(map(re.escape, segment.alternatives))})"
        else:
            text = r"\*" if isinstance(segment, Wildcard) else r"(?:\d+|\*)"
        parts.append(change(at, text))
    return re.compile(r"\.".join(parts))


def expand(key: Key) -> list[str]:
    """The key with alternation written out and indices as `*`."""
    texts = [""]
    for segment in key.segments:
        words = segment.alternatives if isinstance(segment, Names) else ("*",)
        texts = [f"{text}.{word}" if text else word for text in texts for word in words]
    return texts


def braces(names: list[str]) -> Iterator[str]:
    """Names that differ only in their last segment, drawn together: `mlp.{gate,up}_proj`."""
    by_owner: dict[str, list[str]] = {}
    for name in names:
        owner, _, last = name.rpartition(".")
        by_owner.setdefault(owner, []).append(last)
    for owner, words in by_owner.items():
        yield f"{owner}.{_drawn_together(words)}" if owner else _drawn_together(words)


def _drawn_together(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    shortest = min(map(len, words))
    end = next((n for n in range(shortest) if len({word[-n - 1] for word in words}) > 1), shortest)
    # Cut at a word boundary, so that `gate_proj` and `up_proj` share `_proj` and `k_norm` and `norm` nothing.
    suffix = words[0][len(words[0]) - end :]
    suffix = suffix[suffix.find("_") :] if "_" in suffix else ""
    stems = [word[: len(word) - len(suffix)] for word in words]
    return f"{{{','.join(stems)}}}{suffix}" if all(stems) else f"{{{','.join(words)}}}"


_EXPLANATIONS = (_parameter_suffix, _layer_out_of_range, _prefix, _glob, _misspelt)
