"""What single modules say of themselves: heads of attention modules, experts."""

from typing import Any

from torch import nn


def module_facts(module: nn.Module) -> dict[str, Any]:
    """Fields of `ModuleEntry` beside name, class, sizes and parameters."""
    return {}
