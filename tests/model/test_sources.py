"""MODEL in all its forms."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.model import bundled
from planc.model.building.configs import build_config
from planc.model.errors import ModelError
from planc.model.source import ConfigSource, FactorySource, ManifestSource, NamedSource, find_source, read_json
from planc.model.sources import load_manifest

FACTORIES = "tests.model.factories"
SMALL = {"model_type": "qwen3", "num_hidden_layers": 2, "architectures": ["Qwen3ForCausalLM"]}
WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "huggingface_hub", "networkx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from planc.model.errors import ModelError
from planc.model.sources import load_manifest
try:
    print(len(load_manifest(sys.argv[1]).parameters))
except ModelError as error:
    print(error.message, *error.help)
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of this test's own, and no network."""
    monkeypatch.setenv("PLANC_CACHE_DIR", str(tmp_path / "planc"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def without_torch(model: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, model], capture_output=True, text=True, check=True
    ).stdout


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def hub_snapshot(home: Path, hub_id: str, config: object) -> None:
    folder = home / "hub" / f"models--{hub_id.replace('/', '--')}"
    write(folder / "refs" / "main", "abc123")
    write(folder / "snapshots" / "abc123" / "config.json", config)


def test_folder_file_and_manifest_say_the_same(tmp_path: Path) -> None:
    config = write(tmp_path / "model" / "config.json", SMALL)
    by_folder, by_file = load_manifest(str(config.parent)), load_manifest(str(config))
    by_folder.save(tmp_path / "saved.json")
    by_manifest = load_manifest(str(tmp_path / "saved.json"))
    assert by_folder.hash == by_file.hash == by_manifest.hash
    assert by_file.file.name == str(config)
    assert by_file.file.class_name == "Qwen3ForCausalLM"


def test_architectures_choose_the_class(tmp_path: Path) -> None:
    def class_name(architecture: str) -> str:
        return load_manifest(
            str(write(tmp_path / "config.json", SMALL | {"architectures": [architecture]}))
        ).file.class_name

    assert class_name("Qwen3Model") == "Qwen3Model"
    # Names of no model class, or of another config's, leave the choice to the Auto classes.
    assert {class_name(name) for name in ("Trainer", "LlamaForCausalLM", "os.system", "NoSuchClass")} == {
        "Qwen3ForCausalLM"
    }


def test_model_type_with_changed_fields() -> None:
    manifest = load_manifest("llama", config={"num_key_value_heads": 1, "num_hidden_layers": 1})
    assert manifest.parameters["model.layers.0.self_attn.k_proj.weight"][1].shape == (128, 4096)
    assert manifest.file.config["num_key_value_heads"] == 1
    assert len(load_manifest("llama").modules) > len(manifest.modules)


def test_nested_fields_change_one_by_one() -> None:
    config = {"text_config": {"num_hidden_layers": 1}}
    manifest = load_manifest("gemma3", config=config)
    assert manifest.file.config["num_hidden_layers"] == 1
    assert manifest.file.config["hidden_size"] == load_manifest("gemma3").file.config["hidden_size"]


@pytest.mark.parametrize("name", bundled.index())
def test_bundled_by_each_of_its_names(name: str) -> None:
    short = load_manifest(name)
    assert short.file.name == name
    for hub_id in bundled.index()[name]:
        assert load_manifest(hub_id).hash == load_manifest(hub_id.upper()).hash == short.hash


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gpt-oss-20b"])
def test_bundled_manifests_are_what_the_program_writes(name: str) -> None:
    from planc.model.building.bundle import manifest_of

    assert manifest_of(name).to_json() == bundled.manifest_path(name).read_bytes()


def test_bundled_models_need_no_torch() -> None:
    assert without_torch("Qwen/Qwen3-30B-A3B").strip() == str(len(load_manifest("qwen3-30b-a3b").parameters))


def test_what_needs_torch_says_so() -> None:
    said = without_torch("qwen2")
    assert "needs torch" in said or "needs transformers" in said
    assert "planc[runtime]" in said


def test_cached_hub_models_are_found_offline(tmp_path: Path) -> None:
    hub_snapshot(tmp_path / "hub", "someone/small", SMALL)
    source = find_source("someone/small")
    assert isinstance(source, ConfigSource)
    assert load_manifest("someone/small").file.name == "someone/small"


def test_second_load_needs_no_torch(tmp_path: Path) -> None:
    hub_snapshot(tmp_path / "hub", "someone/small", SMALL)
    for model in ("someone/small", "starcoder2"):
        expected = len(load_manifest(model).parameters)
        assert without_torch(model).strip() == str(expected)


def test_factories() -> None:
    linear = load_manifest(f"{FACTORIES}:module")
    assert {name: entry.shape for name, (_, entry) in linear.parameters.items()} == {"weight": (3, 2), "bias": (3,)}
    assert list(load_manifest(f"{FACTORIES}:Holder.nested").modules) == ["", "0", "1"]
    assert load_manifest(f"{FACTORIES}:config").file.class_name == "Qwen3ForCausalLM"


def test_factories_are_called_each_time() -> None:
    from tests.model import factories

    before = factories.calls
    load_manifest(f"{FACTORIES}:module")
    load_manifest(f"{FACTORIES}:module")
    assert factories.calls == before + 2


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(find_source("phi-4"), ConfigSource) and find_source("phi-4").bundled
    assert isinstance(find_source("llama"), NamedSource)
    assert isinstance(find_source("llama:factory"), FactorySource)
    (tmp_path / "llama").mkdir()  # a folder without a config is no model
    assert isinstance(find_source("llama"), NamedSource)
    write(tmp_path / "llama" / "config.json", SMALL)
    write(tmp_path / "phi-4", {"modules": [], "class_name": "X"})
    assert find_source("llama").fields == SMALL
    assert isinstance(find_source("phi-4"), ManifestSource)


MISTAKES: dict[str, tuple[str, str]] = {
    "qwen33_moe": ("no model `qwen33_moe`", "`qwen3_moe`"),
    "qwen3-31b-a3b": ("no model", "`qwen3-30b-a3b`"),
    "Qwen/Qwen3-30B-A3C": ("the hub can't be reached", "`Qwen/Qwen3-30B-A3B`"),
    "https://huggingface.co/Qwen/Qwen3-8B/tree/main": ("is no file", "write `Qwen/Qwen3-8B`"),
    "./nowhere": ("there is no file or folder `./nowhere`", ""),
    "nowhere.json": ("there is no file or folder", ""),
    "a b": ("`a b` is no file, model name", ""),
    "": ("is no file, model name", ""),
    "../../nowhere": ("there is no file or folder", ""),
    "a/../b": ("is no file", ""),
    "x\0y": ("is no file", ""),
    "é" * 5000: ("is no file", ""),
    "no_such_module:f": ("No module named 'no_such_module'", ""),
    f"{FACTORIES}:missing": ("has no attribute 'missing'", ""),
    f"{FACTORIES}:nothing": ("returned a NoneType", ""),
    f"{FACTORIES}:failing": ("raised RuntimeError: first line", ""),
}


@pytest.mark.parametrize("model, says", MISTAKES.items(), ids=[name[:20] for name in MISTAKES])
def test_mistakes(model: str, says: tuple[str, str]) -> None:
    with pytest.raises(ModelError) as refused:
        load_manifest(model)
    assert says[0] in refused.value.message
    assert "\n" not in refused.value.message
    assert says[1] in " ".join(refused.value.help)


def test_a_model_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planc.model.building.instantiate._MOST_MODULES", 1000)
    with pytest.raises(ModelError, match="more than 1,000 modules"):
        load_manifest(f"{FACTORIES}:endless")


DEEP: dict[str, Any] = {}
for _ in range(100):
    DEEP = {"text_config": DEEP}
CONFIGS: dict[str, tuple[Any, str]] = {
    "empty": ("", "is not JSON"),
    "a-plan": ("tp_size: 2\n", "is not JSON"),
    "a-list": ([1], "holds a JSON list"),
    "deep": ("[" * 100_000, "is not JSON: nested too deeply"),
    "deep-objects": (DEEP | SMALL, "more than 32 levels"),
    "no-model-type": ({}, "has no `model_type`"),
    "model-type-of-a-wrong-type": ({"model_type": ["qwen3"]}, "has no `model_type`"),
    "unknown-model-type": ({"model_type": "qwen33"}, "does not know the model type `qwen33`"),
    "wrong-type": (SMALL | {"hidden_size": "big"}, "hidden_size"),
    "too-many-layers": (SMALL | {"num_hidden_layers": 10**9}, "at most 2,000 layers"),
    "too-many-layers-by-another-name": ({"model_type": "gpt2", "n_layer": 10**9}, "at most 2,000 layers"),
    "too-large": (SMALL | {"hidden_size": 10**18, "head_dim": 10**18}, "does not build"),
    "zero-heads": (SMALL | {"num_attention_heads": 0, "head_dim": None}, ""),
    "own-code": ({"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine"}}, "needs code of its own"),
}


@pytest.mark.parametrize("content, says", CONFIGS.values(), ids=CONFIGS)
def test_bad_configs(content: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        load_manifest(str(write(tmp_path / "config.json", content)))
    assert says in refused.value.message
    assert "\n" not in refused.value.message


def test_foreign_code_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    write(
        tmp_path / "model" / "code.py",
        "from transformers import Qwen3Config, Qwen3ForCausalLM\n"
        f"open({str(mark)!r}, 'w').close()\n"
        "class Mine(Qwen3Config):\n    model_type = 'mine'\n"
        "class MineForCausalLM(Qwen3ForCausalLM):\n    config_class = Mine\n",
    )
    references = {"AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.MineForCausalLM"}
    for model_type in ("mine", "qwen3"):
        config: Mapping[str, Any] = SMALL | {"model_type": model_type, "auto_map": references}
        folder = str(write(tmp_path / "model" / "config.json", config).parent)
        if model_type == "mine":
            with pytest.raises(ModelError) as refused:
                load_manifest(folder)
            assert "--trust-remote-code" in refused.value.help[0]
        else:
            assert load_manifest(folder).file.class_name == "Qwen3ForCausalLM"
    assert not mark.exists()
    assert load_manifest(folder, trust_remote_code=True).file.class_name == "MineForCausalLM"
    assert mark.exists()


def test_a_manifest_takes_no_changed_fields() -> None:
    with pytest.raises(ModelError, match="is a manifest"):
        load_manifest(str(bundled.manifest_path("phi-4")), config={"hidden_size": 1})


def test_a_wide_table_per_layer_is_no_number_of_layers() -> None:
    """Gemma 3n's published configs have `vocab_size_per_layer_input: 262144`."""
    fields = {"model_type": "gemma3n_text", "vocab_size_per_layer_input": 262_144, "num_hidden_layers": 10**9}
    with pytest.raises(ModelError, match="num_hidden_layers: 1000000000"):
        build_config(fields, {}, name="gemma3n")
    assert build_config({**fields, "num_hidden_layers": 35}, {}, name="gemma3n").vocab_size_per_layer_input == 262_144


@pytest.mark.parametrize("model_type", ["mamba2", "bamba", "nemotron_h", "granitemoehybrid", "falcon_h1"])
def test_infinity_as_transformers_saves_it(model_type: str, tmp_path: Path) -> None:
    """Written as `{"__float__": "Infinity"}`, for which JSON has no number."""
    config = build_config({"model_type": model_type, "time_step_limit": [0.0, float("inf")]}, {}, name=model_type)
    config.save_pretrained(tmp_path)
    assert '"__float__"' in (tmp_path / "config.json").read_text()
    fields = read_json(tmp_path / "config.json")
    again = build_config(fields, {}, name=model_type)
    assert again.to_dict() == config.to_dict()
    assert list(again.time_step_limit) == [0.0, float("inf")]


def test_other_objects_with_the_tag_of_floats_stay(tmp_path: Path) -> None:
    fields = {"a": {"__float__": "1"}, "b": {"__float__": "NaN", "c": 1}, "d": [{"__float__": "-Infinity"}]}
    assert read_json(write(tmp_path / "config.json", fields)) == {**fields, "d": [float("-inf")]}


def test_a_type_that_borrows_the_class_of_another(tmp_path: Path) -> None:
    """The Auto classes build EXAONE as Llama, with EXAONE's own config."""
    manifest = load_manifest("exaone")
    assert manifest.file.class_name == "LlamaForCausalLM"


def test_a_class_whose_library_is_missing_is_named() -> None:
    with pytest.raises(ModelError, match="does not build") as refused:
        load_manifest("higgs_audio_v2_tokenizer")
    assert any("torchaudio" in line for line in refused.value.help)


def test_every_config_that_transformers_saves_is_read(tmp_path: Path) -> None:
    """The default config of each type, where it has one that transformers itself can save."""
    unread = {}
    saved = 0
    for model_type, config_class in CONFIG_MAPPING.items():
        try:
            config = config_class()
            config.save_pretrained(tmp_path)
        except Exception:  # no default: the type's config has required fields
            continue
        saved += 1
        try:
            build_config(read_json(tmp_path / "config.json"), {}, name=model_type)
        except ModelError as error:
            unread[model_type] = error.message
    assert saved > 500
    assert unread == {}
