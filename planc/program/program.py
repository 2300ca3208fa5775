"""The compiled plan: primitive operations for one model at one layout, each with the plan line it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from planc.layouts.layout import Layout
from planc.program.errors import ProgramError, by_kind

if TYPE_CHECKING:
    from planc.ir.operations import Operation
    from planc.model.manifest import Manifest
    from planc.syntax.plan import PlanKind

FORMAT_VERSION = 1
# What an instruction is part of, in the order of application.
Phase = Literal["pp", "tp", "ep", "fsdp"]
# A program of the largest released model types is some hundred kilobytes.
_MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Provenance:
    """The rule that an operation came from; `file` may be virtual (`<Qwen3MoeForCausalLM.tp_plan>`)."""

    file: str
    line: int
    key: str
    style: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation, the plan that asked for it, and the rule; None where no rule did (FSDP's root, pipeline stages)."""

    phase: Phase
    operation: Operation
    rule: Provenance | None = None


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model that a program was compiled for; `manifest` is `Manifest.hash`."""

    name: str
    class_name: str
    manifest: str


@dataclass(frozen=True, slots=True)
class CarriedPlans:
    """The plans as transformers keeps them on a model that it sharded, keys with `*`; nothing that runs needs them.

    `merged` are the model's rules with the user's over them, `given` the user's alone, `options` those of
    `DistributedConfig` beside sizes.
    """

    merged: Mapping[PlanKind, Mapping[str, str]] = field(default_factory=dict)
    given: Mapping[PlanKind, Mapping[str, str]] = field(default_factory=dict)
    options: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A program in memory.

    `instructions` are in canonical order (`planc.program.encoding`), so that writing and reading a program doesn't
    reorder it.
    """

    layout: Layout
    model: ModelIdentity
    instructions: tuple[Instruction, ...] = ()
    format_version: int = FORMAT_VERSION
    plans: CarriedPlans = CarriedPlans()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations in order of application."""
        return tuple(instruction.operation for instruction in self.instructions)

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) over what the program does and to which model: not over names, files, lines and `plans`."""
        from planc.program.encoding import encode_groups

        groups, _ = encode_groups(self.instructions, provenance=False)
        content = {
            "format_version": self.format_version,
            "layout": _layout_to_json(self.layout),
            "manifest": self.model.manifest,
            "groups": groups,
        }
        return hashlib.sha256(canonical(content)).hexdigest()

    def to_json(self) -> bytes:
        """The canonical file content: one operation a line, keys sorted within it."""
        from planc.program.encoding import encode_groups

        groups, rules = encode_groups(self.instructions)
        head = {
            "format_version": self.format_version,
            "hash": self.hash,
            "layout": _layout_to_json(self.layout),
            "model": asdict(self.model),
        }
        if self.plans != CarriedPlans():
            head["plans"] = asdict(self.plans)
        lines = [f' "{key}": {canonical(value).decode()},' for key, value in head.items()]
        lines += [' "rules": [', _lines([asdict(rule) for rule in rules], "  "), " ],", ' "groups": [']
        lines.append(",\n".join(_group_text(group) for group in groups))
        return ("{\n" + "\n".join(line for line in lines if line) + "\n ]\n}\n").encode()

    def save(self, path: Path) -> None:
        """Write the canonical file content to `path`."""
        path.write_bytes(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Program:
        """Read a program file. Raises ProgramError where it can't be read, isn't one, or was changed by hand."""
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ProgramError(f"can't read `{path}`: {error.strerror}") from None
        if len(content) > _MOST_BYTES:
            raise ProgramError(f"`{path}` is larger than a program can be ({_MOST_BYTES >> 20} MiB)")
        return cls.from_json(content, str(path))

    @classmethod
    def from_json(cls, content: bytes, origin: str) -> Program:
        """Parse and validate a file's content; `origin` names it in errors. Raises ProgramError."""
        from planc.program.decoding import decode

        return decode(content, origin)

    def require(self, manifest: Manifest) -> None:
        """Raise ProgramError unless the program was compiled for this model and is sound on it."""
        from planc.program.verify import verify

        if self.model.manifest != manifest.hash:
            raise ProgramError(
                f"the program was compiled for `{self.model.name}` ({self.model.class_name}, manifest "
                f"{self.model.manifest[:12]}), the model is `{manifest.file.name}` ({manifest.file.class_name}, "
                f"manifest {manifest.hash[:12]}): compile the plan again for this model"
            )
        if faults := verify(self, manifest):
            raise ProgramError("the program is not sound on this model", by_kind(faults))


def canonical(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _layout_to_json(layout: Layout) -> dict[str, int | str]:
    return {f.name: getattr(layout, f.name) for f in fields(layout)}


def _lines(values: list[dict[str, Any]], indent: str) -> str:
    return ",\n".join(indent + canonical(value).decode() for value in values)


def _group_text(group: Mapping[str, Any]) -> str:
    head = canonical({key: value for key, value in group.items() if key != "operations"}).decode()
    return f'  {head[:-1]},"operations":[\n{_lines(group["operations"], "   ")}\n  ]}}'
