"""What whoever loads a model may choose, beside what its config says."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planc.model.errors import ModelError

# Where `planc apply … -- script` leaves what its command line chose, for the script.
CHOICES_VARIABLE = "PLANC_CHOICES"
# What transformers calls the dtype of the config, else of the checkpoint; its default.
AUTO = "auto"
# Those that torch can have as its default dtype, in which transformers builds a model; and torch's other names of them.
DTYPES = ("bfloat16", "float16", "float32", "float64")
_ALSO = {"half": "float16", "float": "float32", "double": "float64"}


@dataclass(frozen=True, slots=True)
class Choices:
    """The dtype and the implementations that a model is loaded with; None is what `from_pretrained` does by default.

    `dtype` is one of `DTYPES`, or None for `auto`, which is the default.
    Names are those of `from_pretrained` of transformers 5.24.0. An implementation may be a mapping from names of
    sub-configs ("" is the model itself) to names of implementations.
    """

    dtype: str | None = None
    attn_implementation: str | Mapping[str, Any] | None = None
    experts_implementation: str | Mapping[str, Any] | None = None

    @classmethod
    def of(cls, dtype: object = None, attn_implementation: Any = None, experts_implementation: Any = None) -> "Choices":
        """From arguments as transformers takes them: `dtype` may be a `torch.dtype`. Raises ModelError for another."""
        return cls(legal_dtype(dtype), attn_implementation, experts_implementation)

    @property
    def implementations(self) -> dict[str, Any]:
        """The implementations that were chosen, by the name of their argument."""
        named = {
            "attn_implementation": self.attn_implementation,
            "experts_implementation": self.experts_implementation,
        }
        return {name: value for name, value in named.items() if value is not None}

    def over(self, others: "Choices") -> "Choices":
        """These choices, and those of `others` where there is none."""
        fallback = asdict(others)
        return Choices(**{name: fallback[name] if value is None else value for name, value in asdict(self).items()})

    def to_environment(self) -> dict[str, str]:
        """The variable that hands them on to a script; none where nothing was chosen."""
        return {CHOICES_VARIABLE: json.dumps(asdict(self))} if self != Choices() else {}

    @classmethod
    def from_environment(cls) -> "Choices":
        """What the command that started this process chose."""
        text = os.environ.get(CHOICES_VARIABLE)
        return cls(**json.loads(text)) if text else cls()


def legal_dtype(dtype: object) -> str | None:
    """The name of a dtype that a model can have, None for `auto`. Raises ModelError, which lists the legal ones."""
    name = AUTO if dtype is None else str(dtype).removeprefix("torch.")
    name = _ALSO.get(name, name)
    if name not in (AUTO, *DTYPES):
        raise illegal("dtype", name, (AUTO, *DTYPES))
    return None if name == AUTO else name


def illegal(argument: str, given: object, legal: tuple[str, ...]) -> ModelError:
    """The message for a value that `argument` can't have."""
    return ModelError(f"{argument} can't be `{given}`; legal are {', '.join(legal)}")
