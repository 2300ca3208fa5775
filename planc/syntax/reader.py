"""One mapping of fields to a `Plan`, on top of the plan that it extends."""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix
from planc.diagnostics.span import Span
from planc.syntax import codes
from planc.syntax.expressions import parse_requirement
from planc.syntax.fields import ALIKE, DEFAULTS, ELSEWHERE, FIELDS, FLAGS, PLANS, TARGETS, TEXT_OPTIONS
from planc.syntax.keys import parse_key
from planc.syntax.limits import MAX_DIGITS, MAX_FINDINGS
from planc.syntax.nodes import Mapping, Node, Scalar, Sequence, covering
from planc.syntax.plan import SIZE_NAMES, Plan, PlanKind, PlanRule, PlanSection, Requirement, Spanned, StyleUse
from planc.syntax.style_uses import parse_style
from planc.syntax.wording import either, shown

T = TypeVar("T")


class PlanReader:
    """Reads the fields of one file, collecting what is wrong with them in `diagnostics`."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        # Fields that the file has, or that a fix would write: no fix may write one again.
        self._taken: set[str] = set()

    def read(self, root: Mapping, base: Plan) -> Plan:
        """`base` with the fields of `root` over it: rules and requirements are added, all else is replaced."""
        plan = base
        self._taken = {key.value for key, _ in root.entries}
        for key, value in self._bounded(root.entries):
            plan = self._field(plan, key, value)
        return plan

    def read_bare(self, root: Mapping) -> Plan:
        """A dict as transformers takes it for `tp_plan`."""
        return Plan(tp_plan=self._section("tp", root, PlanSection()))

    def _bounded(self, items: Iterable[T]) -> Iterator[T]:
        """`items`, until there are too many findings."""
        for item in items:
            if len(self.diagnostics) == MAX_FINDINGS:
                message = f"{MAX_FINDINGS} findings; the rest of the file was not read"
                last = self.diagnostics[-1].span
                self.diagnostics.append(codes.TooManyFindings.code.found(message, span=last))
            if len(self.diagnostics) > MAX_FINDINGS:
                return
            yield item

    def _field(self, plan: Plan, key: Scalar, value: Node) -> Plan:
        name = key.value
        if name not in FIELDS:
            self.diagnostics.append(_unknown_field(key, self._taken))
            return plan
        if isinstance(value, Scalar) and value.kind == "null":
            return plan
        if name in SIZE_NAMES:
            size = self._integer(key, value)
            return plan if size is None else replace(plan, sizes={**plan.sizes, name: size})
        if name in FLAGS or name in TEXT_OPTIONS:
            option = self._flag(key, value) if name in FLAGS else self._text_option(key, value)
            return plan if option is None else replace(plan, options={**plan.options, name: option})
        if name in PLANS:
            field: dict[str, Any] = {name: self._section(PLANS[name], value, plan.section(PLANS[name]))}
            return replace(plan, **field)
        if name == "require":
            return replace(plan, require=(*plan.require, *self._requirements(key, value)))
        if name == "defaults":
            chosen = self._choice(key, value, DEFAULTS)
            return plan if chosen is None else replace(plan, defaults=cast(Literal["model", "none"], chosen.value))
        if name == "model":
            return replace(plan, model=self._text(key, value) or plan.model)
        return plan  # `extends` was read before

    def _section(self, kind: PlanKind, value: Node, base: PlanSection) -> PlanSection:
        """`auto` and an empty mapping put the base's rules aside; other rules come after them."""
        if isinstance(value, Mapping):
            rules = tuple(rule for entry in self._bounded(value.entries) if (rule := self._rule(kind, *entry)))
            kept = base.rules if value.entries else ()
            return PlanSection("rules", (*kept, *rules), value.span) if rules or not value.entries else base
        if isinstance(value, Scalar) and value.value == "auto":
            if kind == "tp":
                return PlanSection("auto", (), value.inner())
            self.diagnostics.append(_auto_outside_tp(kind, value))
            return base
        wanted = "rules (`key: style`) or `auto`" if kind == "tp" else "rules (`key: style`)"
        self._wrong_type(f"{kind}_plan", value, wanted, help_=_how_rules_are_written(value))
        return base

    def _rule(self, kind: PlanKind, key: Scalar, value: Node) -> PlanRule | None:
        style = self._style(key, value)
        parsed = parse_key(key)
        self.diagnostics += [found for found in (parsed, style) if isinstance(found, Diagnostic)]
        if isinstance(parsed, Diagnostic) or style is None or isinstance(style, Diagnostic):
            return None
        return PlanRule(kind, parsed, style, covering(key.span, value.span))

    def _style(self, key: Scalar, value: Node) -> StyleUse | Diagnostic | None:
        if isinstance(value, Scalar) and value.kind == "string":
            return parse_style(value)
        self._wrong_type(key.value, value, "a style, such as `colwise`", is_rule=True)
        return None

    def _requirements(self, key: Scalar, value: Node) -> Iterable[Requirement]:
        if isinstance(value, Scalar) and value.kind == "string":
            value = Sequence((value,), value.span)
        if not isinstance(value, Sequence):
            self._wrong_type(key.value, value, "a list of conditions, such as `- ep_size <= 8`")
            return
        for item in self._bounded(value.items):
            if not isinstance(item, Scalar) or item.kind != "string":
                self._wrong_type(key.value, item, "a condition, such as `ep_size <= 8`")
                continue
            parsed = parse_requirement(item)
            if isinstance(parsed, Diagnostic):
                self.diagnostics.append(parsed)
            else:
                yield parsed

    def _integer(self, key: Scalar, value: Node) -> Spanned[int] | None:
        if not isinstance(value, Scalar) or value.kind != "integer":
            self._wrong_type(key.value, value, "a whole number", fix=_unquoted_number(value))
            return None
        if len(value.value) > MAX_DIGITS:
            self.diagnostics.append(
                codes.IllegalValue.code.found(
                    f"`{key.value}` has {len(value.value)} digits; at most {MAX_DIGITS} are read", span=value.inner()
                )
            )
            return None
        base = {"0x": 16, "0o": 8}.get(value.value[:2], 10)
        return Spanned(int(value.value.removeprefix("0o"), base), value.inner())

    def _flag(self, key: Scalar, value: Node) -> Spanned[bool | str] | None:
        if isinstance(value, Scalar) and value.kind == "boolean":
            return Spanned(value.value.lower() == "true", value.inner())
        self._wrong_type(key.value, value, "`true` or `false`", fix=_written_out_flag(value))
        return None

    def _text_option(self, key: Scalar, value: Node) -> Spanned[bool | str] | None:
        text = self._choice(key, value, TARGETS) if key.value == "target" else self._text(key, value)
        return None if text is None else Spanned(text.value, text.span)

    def _choice(self, key: Scalar, value: Node, choices: tuple[str, ...]) -> Spanned[str] | None:
        text = self._text(key, value)
        if text is None or text.value in choices:
            return text
        near = difflib.get_close_matches(text.value, choices, 1)
        self.diagnostics.append(
            codes.IllegalValue.code.found(
                f"`{key.value}` can't be {shown(text.value)}",
                span=text.span,
                label=f"expected {either(f'`{choice}`' for choice in choices)}",
                fix=replacement(near[0], text.span) if near else None,
            )
        )
        return None

    def _text(self, key: Scalar, value: Node) -> Spanned[str] | None:
        if isinstance(value, Scalar) and value.kind == "string" and value.value.strip():
            return Spanned(value.value, value.inner())
        self._wrong_type(key.value, value, "a text")
        return None

    def _wrong_type(
        self, name: str, value: Node, wanted: str, *, is_rule: bool = False, fix: Fix | None = None, help_: str = ""
    ) -> None:
        what = f"the rule {shown(name)}" if is_rule else f"`{name}`"
        self.diagnostics.append(
            codes.WrongType.code.found(
                f"{what} takes {wanted}, not {described(value)}",
                span=value.span,
                label=f"expected {wanted}",
                key=name if is_rule else None,
                help=(help_,) if help_ else (),
                fix=fix or _pythons_none(value),
            )
        )


def described(node: Node) -> str:
    """What `node` is, for people."""
    if isinstance(node, Mapping):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Sequence):
        return "a list" if node.items else "an empty list"
    if node.kind == "null":
        return "nothing"
    kind = {"string": "the text", "boolean": "the truth value"}.get(node.kind, "the number")
    return f"{kind} {shown(node.value)}"


def replacement(text: str, span: Span, *, safe: bool = False) -> Fix:
    return Fix(f"write `{text}`", (Edit(span, text),), safe)


def _unknown_field(key: Scalar, taken: set[str]) -> Diagnostic:
    """A finding for a field that plans don't have; its fix writes none of `taken`, and adds to them."""
    near = difflib.get_close_matches(key.value.lower(), FIELDS, 1, cutoff=ALIKE)
    help_: tuple[str, ...] = ()
    if key.value in ELSEWHERE:
        near, help_ = [], (ELSEWHERE[key.value],)
    elif not near and "." in key.value:
        help_ = ("rules stand under `tp_plan`, `ep_plan` or `fsdp_plan`",)
    elif not near:
        help_ = (f"fields are {', '.join(f'`{field}`' for field in FIELDS)}",)
    is_free = bool(near) and key.start is not None and near[0] not in taken
    if is_free:
        taken.add(near[0])
    return codes.UnknownField.code.found(
        f"a plan has no field {shown(key.value)}",
        span=key.inner(),
        label=f"did you mean `{near[0]}`?" if near else "",
        help=help_,
        fix=replacement(near[0], key.inner()) if is_free else None,
    )


def _auto_outside_tp(kind: PlanKind, value: Scalar) -> Diagnostic:
    return codes.IllegalValue.code.found(
        f"only `tp_plan` takes `auto`, `{kind}_plan` doesn't",
        span=value.inner(),
        help=(f"leave `{kind}_plan` out: the model's own rules apply then",),
        fix=replacement("null", value.span, safe=True),
    )


def _how_rules_are_written(value: Node) -> str:
    """What to change in a list or a text that stands where rules should."""
    if isinstance(value, Sequence):
        return "write the rules without dashes, as `key: style` lines"
    if isinstance(value, Scalar) and ":" in value.value:
        return "a space must follow the `:` of `key: style`"
    return ""


def _unquoted_number(value: Node) -> Fix | None:
    """`8` for `"8"` and `8.0`."""
    if isinstance(value, Scalar) and (number := re.fullmatch(r"\s*([0-9]+)(\.0*)?\s*", value.value)):
        return replacement(number[1], value.span, safe=True)
    return None


def _pythons_none(value: Node) -> Fix | None:
    """`null` for the `None` of a printed dict."""
    is_none = isinstance(value, Scalar) and value.value == "None"
    return replacement("null", value.span, safe=True) if is_none else None


def _written_out_flag(value: Node) -> Fix | None:
    if not isinstance(value, Scalar):
        return None
    meant = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
    meant |= {"true": "true", "false": "false"}
    spelt = meant.get(value.value.strip().lower())
    return None if spelt is None else replacement(spelt, value.span, safe=True)
