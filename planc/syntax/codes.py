"""The kinds of syntax errors. Each docstring is what `planc explain` prints."""

from typing import ClassVar

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Severity


class _Defined:
    code: ClassVar[Code]


@define("PL001", "not-yaml", Severity.ERROR)
class NotYaml(_Defined):
    """Looks for a plan file that isn't YAML 1.2, at the place where reading had to stop.

    Nothing after that place was read, so nothing after it was checked.

    Example:

        tp_plan: {model.layers.[0-2].mlp.up_proj: colwise}

    Use instead:

        tp_plan: {"model.layers.[0-2].mlp.up_proj": colwise}

    Inside `{…}` and `[…]`, texts that hold brackets or commas need quotes; everywhere, so do those that start with
    `*`, `[`, `{`, `@` or a backtick. Lines are indented by spaces.
    """


@define("PL002", "unreadable-plan", Severity.ERROR)
class UnreadablePlan(_Defined):
    """Looks for a plan file that can't be read.

    It isn't there, isn't a regular file, may not be opened, isn't UTF-8 text, or is larger than 256 KiB: there is no
    plan to check.

    Example:

        $ planc check qwen3-8b plans/

    Use instead:

        $ planc check qwen3-8b plans/qwen3.yaml
    """


@define("PL003", "empty-plan", Severity.ERROR)
class EmptyPlan(_Defined):
    """Looks for a plan file that holds nothing but spaces and comments.

    An empty file is more often an accident of a script than a plan.

    Example:

        # tp_size: 2

    Use instead, for a plan that leaves everything to the model:

        tp_plan: auto
    """


@define("PL004", "several-documents", Severity.ERROR)
class SeveralDocuments(_Defined):
    """Looks for a plan file with more than one YAML document.

    A plan is one document; it would be a guess which one was meant.

    Example:

        tp_size: 2
        ---
        tp_size: 4

    Use instead: one file for each plan. What they share goes into a third that both name under `extends`.
    """


@define("PL005", "too-large", Severity.ERROR)
class TooLarge(_Defined):
    """Looks for a plan that is nested more than 20 levels deep, or holds more than 10,000 keys and values.

    A plan has three levels, and index sets and alternation keep it short. A larger file is something else, or meant
    to exhaust whoever reads it. Nothing of it was checked.

    Example:

        require: [[[[[[[[[[[[[[[[[[[[ep_size <= 8]]]]]]]]]]]]]]]]]]]]

    Use instead:

        require: [ep_size <= 8]
    """


@define("PL006", "unsupported-yaml", Severity.ERROR)
class UnsupportedYaml(_Defined):
    """Looks for YAML that has no place in a plan.

    That is: tags (`!!python/object`), directives other than `%YAML 1.2`, merge keys (`<<`), keys that are mappings or
    lists, and aliases (`*rules`) of a whole mapping or list. An alias of a single value is read as that value.

    Tags ask a reader to build objects. Merge keys were dropped in YAML 1.2, and which of two rules wins would depend
    on the reader. Aliases of mappings can make a small file grow without bound.

    Example:

        tp_plan: &rules
          model.layers.*.mlp.up_proj: colwise
        ep_plan: *rules

    Use instead: write the rules out, or put them into a file of their own and name it under `extends`.
    """


@define("PL007", "duplicate-key", Severity.ERROR)
class DuplicateKey(_Defined):
    """Looks for a key that stands twice in one mapping. The later one is what the rest of the check goes by.

    YAML readers drop one of the two without a word, and not all the same one.

    Example:

        tp_plan:
          lm_head: colwise_gather_output
          lm_head: rowwise

    Use instead:

        tp_plan:
          lm_head: colwise_gather_output
    """


@define("PL008", "unknown-field", Severity.ERROR)
class UnknownField(_Defined):
    """Looks for a field that plans don't have.

    The fields are those of transformers' `DistributedConfig`, and `model`, `extends`, `defaults`, `target` and
    `require`. transformers ignores fields that it doesn't know when it reads a `DistributedConfig`, so that a misspelt
    size would quietly stay 1.

    Example:

        tp_sise: 8

    Use instead:

        tp_size: 8
    """


@define("PL009", "wrong-type", Severity.ERROR)
class WrongType(_Defined):
    """Looks for a value that isn't of the type that its field or rule takes.

    The field has no meaning then, and is left out of the rest of the check.

    Example:

        tp_size: "8"
        fsdp_cpu_offload: yes     # a text in YAML 1.2
        require: {ep_size: 8}

    Use instead:

        tp_size: 8
        fsdp_cpu_offload: true
        require:
          - ep_size <= 8
    """


@define("PL010", "illegal-value", Severity.ERROR)
class IllegalValue(_Defined):
    """Looks for a value of the right type that its field doesn't take.

    `defaults` is `model` or `none`, `target` one of the known runtimes, and only `tp_plan` can be `auto`. Another value
    has no meaning, and is left out of the rest of the check.

    Example:

        defaults: keep
        ep_plan: auto

    Use instead (a plan that isn't given is the model's own):

        defaults: model
    """


@define("PL011", "extends-cycle", Severity.ERROR)
class ExtendsCycle(_Defined):
    """Looks for plans that extend each other in a circle, or a plan that extends itself.

    It would have no first rule. What was read before the circle closes is still checked.

    Example:

        # base.yaml
        extends: qwen3.yaml

        # qwen3.yaml
        extends: base.yaml

    Use instead: let `base.yaml` extend nothing.
    """


@define("PL012", "extends-unreadable", Severity.ERROR)
class ExtendsUnreadable(_Defined):
    """Looks for an `extends` that names no readable plan file.

    The rules of the base are missing from the check. The name is relative to the extending file and ends in `.yaml`,
    `.yml` or `.json`; nothing is fetched over a network, and at most 16 plans extend each other in a row.

    Example:

        extends: https://example.org/base.yaml

    Use instead:

        extends: base.yaml
    """


@define("PL013", "too-many-findings", Severity.ERROR)
class TooManyFindings(_Defined):
    """Says that reading stopped after 200 findings about the text of one file.

    What comes later in the file was not read and not checked. A file with so many faults is seldom a plan.

    Example:

        $ planc check qwen3-8b model.safetensors.index.json

    Use instead: name the plan file, or mend the findings shown and check again.
    """


@define("PL021", "invalid-key", Severity.ERROR)
class InvalidKey(_Defined):
    """Looks for a rule's key that isn't a dotted name.

    A segment of a key is a name, `*` (one layer number), a layer number or a set of them (`[0-2,5]`), or a name with a
    choice in it (`{gate,up}_proj`). Other tools give `*`, `**` and regular expressions other meanings; in a plan `*` is
    one layer number, as in transformers, and never part of a name.

    Example:

        tp_plan:
          model.layers.*.mlp.*_proj: colwise
          model.layers[0].mlp.up_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.mlp.{gate,up}_proj: colwise
          model.layers.0.mlp.up_proj: colwise
    """


@define("PL022", "invalid-index-set", Severity.ERROR)
class InvalidIndexSet(_Defined):
    """Looks for a set of layer numbers that is empty, reversed, or not made of plain numbers and ranges.

    Both ends of a range belong to it. Read otherwise, the rule names no layer, or others than it seems to.

    Example:

        tp_plan:
          model.layers.[3-1].mlp.up_proj: colwise
          model.layers.[0:2].mlp.up_proj: colwise

    Use instead:

        tp_plan:
          model.layers.[1-3].mlp.up_proj: colwise
          model.layers.[0-1].mlp.up_proj: colwise
    """


@define("PL023", "invalid-alternation", Severity.ERROR)
class InvalidAlternation(_Defined):
    """Looks for a choice of names that can't be one.

    It is empty, names one twice, holds layer numbers, or expands to more than 256 names. An empty alternative is a slip
    that would name the rest of the segment alone; layer numbers have index sets.

    Example:

        tp_plan:
          model.layers.*.mlp.{gate,}_proj: colwise
          model.layers.{0,1}.mlp.up_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.mlp.{gate,up}_proj: colwise
          model.layers.[0,1].mlp.up_proj: colwise
    """


@define("PL031", "invalid-style", Severity.ERROR)
class InvalidStyle(_Defined):
    """Looks for a rule's style that isn't a name, with named arguments in parentheses where it takes some.

    The rule has no style, and is left out of the rest of the check.

    Example:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: packed_colwise(2)

    Use instead:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: packed_colwise(split_factor=2)
    """


@define("PL041", "invalid-requirement", Severity.ERROR)
class InvalidRequirement(_Defined):
    """Looks for a requirement that isn't a condition over mesh sizes and config fields.

    A condition is made of comparisons (`==`, `!=`, `<`, `<=`, `>`, `>=`, chained ones too) of whole numbers and names,
    with `+`, `-`, `*`, `//`, `%`, joined by `and`, `or`, `not` and parentheses. Without one the limit that the team set
    isn't watched.

    Example:

        require:
          - num_key_value_heads % tp_size = 0
          - ep_size

    Use instead:

        require:
          - num_key_value_heads % tp_size == 0
          - ep_size <= 8
    """
