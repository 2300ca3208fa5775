"""What a plan really does, by trying it: the yardstick for cheaper verdicts."""

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from transformers import PreTrainedConfig
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES, replace_layer_number_by_wildcard

from planc.layouts.layout import Layout
from planc.model.building.configs import build_config
from planc.verify.applying import ByTransformers
from planc.verify.copying.copy import SmallCopy, small_copy
from planc.verify.copying.errors import CopyError
from planc.verify.quiet import quiet
from planc.verify.reference import reference
from planc.verify.trial import Laboratory, Trial

Truth = Literal["refused", "ignored", "crash", "wrong_forward", "wrong_gradient", "right", "unknown"]


def truth(model: str | PreTrainedConfig, rules: Mapping[str, str], tp_size: int) -> Truth:
    """What transformers' own application of `rules` does to a small copy of `model` over `tp_size` ranks.

    `model` is a model type (its default config) or a config. `rules` maps names, concrete or with `*` for layer
    numbers, to styles; nothing is added to them. `refused`: transformers raises while it applies the plan; `crash`: the
    model then doesn't run; `wrong_forward` and `wrong_gradient`: it runs and departs from the copy run whole, in that
    part first; `unknown`: there is no copy, or none that can
    tell, or a rank was lost. The copy is built once for a model and a size.
    """
    bench = TruthBench.of(model if isinstance(model, PreTrainedConfig) else _default(model), tp_size)
    return bench.judge(rules) if bench is not None else "unknown"


class TruthBench:
    """A copy of one model, and `tp_size` ranks to try plans on, which with `experts` are an EP group too."""

    def __init__(self, copied: SmallCopy, tp_size: int, experts: bool = False) -> None:
        self.copy = copied
        layout = Layout(tp_size=tp_size, ep_size=tp_size if experts else 1)
        self.laboratory = Laboratory(copied.model, reference(copied.model, [copied.batch], 0), layout)

    @staticmethod
    def of(config: PreTrainedConfig, tp_size: int, experts: bool = False) -> "TruthBench | None":
        """The bench for a model, None where no copy of it can be made."""
        return _bench(_Key(config), tp_size, experts)

    def judge(self, rules: Mapping[str, str], expert_rules: Mapping[str, str] | None = None) -> Truth:
        """As `truth`; `expert_rules` are the EP plan."""
        if self.laboratory.reference.ill_conditioned:
            return "unknown"
        if not {*rules.values(), *(expert_rules or {}).values()} <= set(ALL_PARALLEL_STYLES):
            return "refused"
        if not rules or expert_rules == {}:
            return "refused"  # as `_resolve_parallel_plans` does with a size that no rule makes use of
        if expert_rules is None:
            return verdict(self.trial(rules))
        return self._judge_experts(rules, expert_rules)

    def trial(self, rules: Mapping[str, str]) -> Trial:
        """Try `rules`, and tell all that departs."""
        layout = self.laboratory.layout
        with quiet():
            return self.laboratory.trial(ByTransformers(layout, expanded(self.copy, rules), {}, {}))

    def _judge_experts(self, rules: Mapping[str, str], expert_rules: Mapping[str, str]) -> Truth:
        """Both plans are resolved by transformers; experts run by `grouped_mm`, as `eager` ones can't be masked.

        `ignored`: no rule dispatches, and transformers leaves the EP plan out without a word.
        """
        layout = self.laboratory.layout
        own: Any = copy.copy(self.copy.model)
        own._tp_plan, own._ep_plan = dict(rules), dict(expert_rules)
        try:
            with quiet():
                plans = own._resolve_parallel_plans(DistributedConfig(tp_size=layout.tp_size, ep_size=layout.ep_size))
        except (ValueError, KeyError):
            return "refused"
        if "ep_dispatch_experts" not in plans[1].values():
            return "ignored"
        with quiet():
            return verdict(self.laboratory.trial(ByTransformers(layout, plans[0], plans[1], {}), experts="grouped_mm"))


def expanded(copied: SmallCopy, rules: Mapping[str, str]) -> dict[str, str]:
    """`rules` by concrete name, in the order of `_expand_parallel_plan` (`transformers/distributed/mixin.py`)."""

    def own(name: str) -> str | None:
        return rules.get(name) or rules.get(replace_layer_number_by_wildcard(name))

    plan: dict[str, str] = {}
    for name, module in copied.model.named_modules():
        for parameter, _ in module.named_parameters(recurse=False):
            full = f"{name}.{parameter}" if name else parameter
            if style := own(full) or own(name):
                plan[full] = style
        if style := own(name):
            plan[name] = style
    return plan


def verdict(trial: Trial) -> Truth:
    """The outcome of a trial in one word."""
    if trial.stopped is not None and trial.stopped.lost:
        return "unknown"
    if trial.stopped is not None:
        return "refused" if trial.stopped.refused else "crash"
    parts = {departure.part for departure in trial.departures}
    if parts & {"weights", "inference", "training"}:
        return "wrong_forward"
    return "wrong_gradient" if parts else "right"


class _Key:
    """A config as the key of a cache: equal to those with the same fields."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self.config = config
        self._text = config.to_json_string(use_diff=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=8)
def _bench(key: _Key, tp_size: int, experts: bool) -> TruthBench | None:
    try:
        with quiet():
            return TruthBench(small_copy(key.config, [tp_size]), tp_size, experts)
    except CopyError:
        return None


@lru_cache(maxsize=256)
def _default(model_type: str) -> PreTrainedConfig:
    return build_config({"model_type": model_type}, {}, name=model_type)
