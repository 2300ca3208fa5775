"""What a user may name as `package.module:factory`."""

from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, Qwen3Config, Qwen3Model

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


class Speech(PreTrainedModel):
    """A composite model whose config carries its decoder's plan without the decoder's prefix."""

    config_class = Qwen3Config
    base_model_prefix = "model"

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__(config)
        self.language_model = nn.Module()
        self.language_model.layers = Qwen3Model(config).layers
        self.post_init()


class SpeechWithHead(Speech):
    """The same with a head, which has a rule of its class that does name it."""

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


class Wrapper(nn.Module):
    """What an adapter library puts around a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base_model = nn.Module()
        self.base_model.model = model


def composite(cls: type[Speech] = Speech) -> nn.Module:
    return cls(Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16, vocab_size=256,
                              num_attention_heads=4, num_key_value_heads=2))  # fmt: skip


def composite_with_head() -> nn.Module:
    return composite(SpeechWithHead)


def wrapped() -> nn.Module:
    return Wrapper(composite())
