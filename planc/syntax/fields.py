"""The fields of a plan file: those of transformers 5.24.0's `DistributedConfig`, and planc's own."""

from planc.syntax.plan import SIZE_NAMES, PlanKind

# Runtimes with limits of their own that a plan can be checked for.
TARGETS = ("torchrun", "trainer")
DEFAULTS = ("model", "none")
FLAGS = (
    "enable_sequence_parallel",
    "enable_expert_parallel",
    "fsdp_cpu_offload",
    "fsdp_mixed_precision",
)
TEXT_OPTIONS = ("ep_implementation", "target")
PLANS: dict[str, PlanKind] = {"tp_plan": "tp", "ep_plan": "ep", "fsdp_plan": "fsdp"}

# In the order in which the formatter writes them.
FIELDS = (
    "model",
    "extends",
    "defaults",
    "target",
    *SIZE_NAMES,
    "ep_implementation",
    *FLAGS,
    *PLANS,
    "require",
)
