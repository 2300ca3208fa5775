"""Small models by hand, where a fact is needed that no released model has."""

from planc.model.manifest import Attention, Experts, Manifest, ManifestFile, ModuleEntry, ParameterEntry, Plans


def linear(name: str, out: int, into: int, at: tuple[str, ...] = ()) -> ModuleEntry:
    weight = ParameterEntry(name="weight", shape=(out, into), dtype="float32")
    return ModuleEntry(
        name=name, at=at, class_name="Linear", sizes={"in_features": into, "out_features": out}, parameters=(weight,)
    )


def container(name: str, at: tuple[str, ...] = (), **facts: object) -> ModuleEntry:
    return ModuleEntry.model_validate({"name": name, "at": at, "class_name": name.title() or "Toy", **facts})


def toy(*modules: ModuleEntry, **fields: object) -> Manifest:
    """A model of `modules` under a root."""
    return Manifest(
        ManifestFile.model_validate(
            {"name": "toy", "class_name": "Toy", "modules": (container(""), *modules), "plans": Plans(), **fields}
        )
    )


def attention(**facts: int) -> Manifest:
    """One attention module whose projection `mixed` is of no known width."""
    return toy(
        container("attention", attention=Attention(**facts)),
        linear("attention.q", facts["num_heads"] * facts["head_dim"], 32),
        linear("attention.mixed", 50, 32),
    )


def experts(count: int) -> Manifest:
    weight = ParameterEntry(name="up", shape=(count, 6, 4), dtype="bfloat16")
    return toy(
        linear("dense", 4, 4),
        container(
            "experts",
            experts=Experts(num_experts=count),
            sizes={"num_experts": count},
            parameters=(weight,),
        ),
    )
