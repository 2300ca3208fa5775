"""The fields of a plan file: those of transformers 5.24.0's `DistributedConfig`, and planc's own."""

from planc.syntax.plan import PlanKind

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

# What other tools call fields, or what isn't one, and where it is said.
ELSEWHERE = {
    "distributed_config": "its fields are those of the plan itself: write them without it",
    "world_size": "the launcher decides it; `--world-size` checks a plan against it",
    "efsdp_size": "it follows from the other sizes: `fsdp_size * tp_size / ep_size`",
    "dp_size": "`dp_replicate_size` and `fsdp_size` make it up",
    "tensor_parallel_size": "it is called `tp_size`",
    "expert_parallel_size": "it is called `ep_size`",
    "pipeline_parallel_size": "it is called `pp_size`",
    "tensor_parallel_plan": "it is called `tp_plan`",
}
# How much a name must be like a field (difflib's ratio) to be taken for a misspelling of it.
ALIKE = 0.75

# In the order in which the formatter writes them.
FIELDS = (
    "model",
    "extends",
    "defaults",
    "target",
    "tp_size",
    "fsdp_size",
    "dp_replicate_size",
    "pp_size",
    "ep_size",
    "ep_implementation",
    *FLAGS,
    *PLANS,
    "require",
)
