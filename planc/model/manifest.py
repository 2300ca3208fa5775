"""The manifest: everything planc knows of a model, as a file. No torch is needed to read one.

On disk modules are grouped: one `ModuleEntry` stands for all modules that differ only in layer numbers, so that a
671 B model is a few dozen kilobytes. In memory `Manifest.modules` expands them to concrete names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planc.model.errors import ModelError
from planc.model.expansion import expand

# What a machine counts with: larger numbers can't be computed with, and are no facts.
_LARGEST = 2**63 - 1
Size = Annotated[int, Field(ge=0, le=_LARGEST)]
Count = Annotated[int, Field(ge=1, le=_LARGEST)]
# No module of any model has a longer name, and no style one; longer ones are not read, printed or looked for.
_LONGEST = 1_000
ModuleName = Annotated[str, Field(pattern=r"^([^.]+(\.[^.]+)*)?$", max_length=_LONGEST)]
ParameterName = Annotated[str, Field(pattern=r"^[^.]+$", max_length=_LONGEST)]
Word = Annotated[str, Field(max_length=_LONGEST)]
# The manifest of the largest released model is a few dozen kilobytes.
_MOST_BYTES = 64 * 1024 * 1024


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Packing(_File):
    """How one dim of a weight holds several projections.

    `blocks`: the parts lie one after the other (`[gate | up]`), `parts` are their widths. `interleaved`: the parts
    alternate in groups (per head, as in GPT-NeoX, or every other feature, as in gpt-oss); a contiguous block of whole
    groups (`group` features) is then itself a legal shard.
    """

    dim: int
    layout: Literal["blocks", "interleaved"]
    parts: tuple[Count, ...]
    group: Count | None = None


class Heads(_File):
    """A Linear whose output is viewed as `count` heads of `size` features; `role` as attention uses it.

    For a fused projection `role` is "fused" and `count * size` covers all of its parts.
    """

    role: Literal["query", "key", "value", "output", "fused", "other"]
    count: Count
    size: Count


class Attention(_File):
    """Head counts of an attention module, as seen at the attention function's inputs."""

    num_heads: Count
    num_key_value_heads: Count
    head_dim: Count


class Experts(_File):
    """A module that holds experts: how many, and whether it is called as `(hidden_states, indices, weights)`."""

    num_experts: Count
    routed: bool = True


class Quantization(_File):
    """`quantization_config` of the model's config, as far as shards must respect it."""

    method: str
    bits: Count | None = None
    group_size: Count | None = None
    not_converted: tuple[str, ...] = ()


class ParameterEntry(_File):
    """A parameter by its name in its module; `shape` is global, `dtype` as torch prints it without `torch.`."""

    name: ParameterName
    shape: tuple[Size, ...]
    dtype: str
    packing: Packing | None = None


class ModuleEntry(_File):
    """Modules alike but for their layer numbers.

    `name` is the generic name with one `*` for each all-digit segment; `at` lists the numbers, each item a product of
    inclusive ranges, one per `*`: `("0-2", "5")`, or `("3-60;0-255",)` for two. Without a `*`, `at` is empty.
    `sizes` are the module's own integer and boolean attributes (`in_features`, `out_features`, `num_embeddings`, …).
    `children` lists the names of the module's children where their order isn't the natural one: that of the entries,
    and ascending numbers.
    """

    name: ModuleName
    at: tuple[str, ...] = ()
    class_name: str
    sizes: dict[str, Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]] = {}
    parameters: tuple[ParameterEntry, ...] = ()
    heads: Heads | None = None
    attention: Attention | None = None
    experts: Experts | None = None
    children: tuple[str, ...] = ()


class Plans(_File):
    """The model's own plans after transformers merged class, config and submodel plans (keys carry prefixes)."""

    tp: dict[Word, Word] = {}
    ep: dict[Word, Word] = {}
    fsdp: dict[Word, Word] = {}
    pp: dict[str, Any] = {}


class ManifestFile(_File):
    """The file format. Everything a check, a resolution or a program needs to know of a model."""

    format_version: Literal[1] = 1
    name: str
    class_name: str
    model_type: str | None = None
    base_model_prefix: str = ""
    dtype: str = "float32"
    versions: dict[str, str] = {}
    config: dict[str, Any] = {}
    modules: tuple[ModuleEntry, ...]
    ties: tuple[tuple[str, str], ...] = Field(default=(), description="(tied parameter, the parameter it shares)")
    plans: Plans = Plans()
    input_embeddings: str | None = None
    output_embeddings: str | None = None
    float32_modules: tuple[str, ...] = Field(default=(), description="generic names of modules kept in float32")
    layers: str | None = Field(default=None, description="name of the list of decoder layers, for pipeline stages")
    quantization: Quantization | None = None
    flows: tuple[dict[str, Any], ...] = ()
    unwatched: str | None = Field(default=None, description="what a model raised that gave no flows")


@dataclass(frozen=True, slots=True)
class Module:
    """One concrete module; `entry` holds what it shares with its like."""

    name: str
    entry: ModuleEntry
    has_children: bool = False

    @property
    def parameters(self) -> Mapping[str, ParameterEntry]:
        """The module's own parameters by full name."""
        prefix = f"{self.name}." if self.name else ""
        return {prefix + p.name: p for p in self.entry.parameters}


class Manifest:
    """A manifest in memory. Raises ModelError where the entries of `file` contradict each other."""

    def __init__(self, file: ManifestFile) -> None:
        self.file = file

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        """Every module by concrete name, in the order of the model's `named_modules()`."""
        entries = dict(expand(self.file.modules))
        parents = {name.rpartition(".")[0] for name in entries if name}
        return {name: Module(name, entry, name in parents) for name, entry in entries.items()}

    @cached_property
    def parameters(self) -> Mapping[str, tuple[Module, ParameterEntry]]:
        """Every parameter by concrete name, tied ones under each of their names."""
        return {
            f"{module.name}.{parameter.name}" if module.name else parameter.name: (module, parameter)
            for module in self.modules.values()
            for parameter in module.entry.parameters
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) over what a program depends on: every module's name, class and parameters, and the ties.

        Not over the model's name, its config, versions, plans, or facts that only checks read: a live model on any
        device has the hash of the config it was built from.
        """
        modules = [
            [name, module.entry.class_name, [[p.name, p.shape, p.dtype] for p in module.entry.parameters]]
            for name, module in self.modules.items()
        ]
        structure = {"format_version": self.file.format_version, "modules": modules, "ties": self.file.ties}
        return hashlib.sha256(_json(structure)).hexdigest()

    def renamed(self, name: str) -> Manifest:
        """The same manifest under the name that the user knows the model by."""
        return self if name == self.file.name else Manifest(self.file.model_copy(update={"name": name}))

    def to_json(self) -> bytes:
        """The canonical file content: fields in the order of their declaration, defaults left out, one line.

        Mappings keep the model's order: findings number the rules of its plans by it.
        """
        content = {"format_version": 1} | self.file.model_dump(mode="json", exclude_defaults=True)
        return _json(content) + b"\n"

    def save(self, path: Path) -> None:
        """Write the canonical file content to `path`."""
        path.write_bytes(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest file. Raises ModelError where it can't be read or isn't one."""
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ModelError(f"`{path}` is larger than a manifest can be ({_MOST_BYTES >> 20} MiB)")
            return cls.from_json(path.read_bytes(), str(path))
        except OSError as error:
            raise ModelError(f"can't read `{path}`: {error.strerror}") from None

    @classmethod
    def from_json(cls, content: bytes, origin: str) -> Manifest:
        """Parse and validate a file's content; `origin` names it in errors. Raises ModelError."""
        try:
            manifest = cls(ManifestFile.model_validate_json(content))
            manifest._verify()
        except ValidationError as error:
            raise ModelError(f"`{origin}` is not a manifest: {_explain(error)}") from None
        except ModelError as error:
            raise ModelError(f"`{origin}` is not a manifest: {error.message}", error.help) from None
        return manifest

    def _verify(self) -> None:
        """Expand all names, and look up those of ties."""
        known = self.parameters
        for name in (name for tie in self.file.ties for name in tie):
            if name not in known:
                raise ModelError(f"a tie names the parameter `{name}`, which no module has")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _explain(error: ValidationError) -> str:
    """The first few faults with their places in the file."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, f['loc'])) or 'the file'}: {f['msg']}" for f in faults[:3]]
    return "; ".join(shown) + (f" (and {len(faults) - 3} more)" if len(faults) > 3 else "")
