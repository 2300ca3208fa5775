"""What a user may name as `package.module:factory`."""

from torch import nn
from transformers import AutoConfig, PreTrainedConfig

calls = 0


class Holder:
    @staticmethod
    def nested() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


def module() -> nn.Module:
    global calls
    calls += 1
    return nn.Linear(2, 3)


def config() -> PreTrainedConfig:
    return AutoConfig.for_model("qwen3", num_hidden_layers=2)


def nothing() -> None:
    return None


def failing() -> nn.Module:
    raise RuntimeError("first line\nsecond line")


def endless() -> nn.Module:
    return nn.ModuleList(nn.Identity() for _ in iter(int, 1))
