"""Model folders: what cannot be used is refused with one message, and nothing in a folder is ever run."""

import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_models
from support.broken_models import BROKEN, LARGE, Hostile
from support.refusals import refuses

from testbed.config.run import Run
from testbed.execution.preflight import prepare
from testbed.execution.runner import run_sweep
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.json_files import read_json
from testbed.policies.hf.model_folder import (
    _faults,
    adapter_parameters,
    first_line,
    load_model,
    parameters_of,
    shapes_of,
    weight_files,
    weight_shapes,
)

TASK = tiny_models.Echo()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    config = tiny_models.CONFIGS["llama"]()
    return tiny_models.write_model(tmp_path_factory.mktemp("good"), config)


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "model")


def edit(folder, name="config.json", **changes):
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


def refusal(folder):
    refused = refuses("", HuggingFacePolicy, folder, TASK)
    assert "\n" not in refused
    return refused


def test_a_missing_folder_and_a_file_are_refused(tmp_path):
    assert "does not exist; give" in refusal(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "does not exist; give" in refusal(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "message"),
    [("config.json", "has no config.json"),
     ("model.safetensors", "has no weights; expected model.safetensors or model.safetensors.index.json.")],
)  # fmt: skip
def test_a_folder_in_which_a_file_is_missing_is_refused(folder, name, message):
    (folder / name).unlink()
    assert message in refusal(folder)


@pytest.mark.parametrize(("kind", "name"), [("gpt-17", "GPT17"), ("t5", "T5ForConditionalGeneration")])
def test_an_unknown_architecture_and_one_of_another_kind_are_refused(folder, kind, name):
    edit(folder, model_type=kind, architectures=[name])
    assert "Cannot load the model" in refusal(folder)


def test_pickled_weights_are_refused_and_not_opened(folder, tmp_path):
    marker = tmp_path / "ran"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(marker)))
    message = refusal(folder)
    assert "are pickles (pytorch_model.bin)" in message
    assert "save_pretrained" in message
    assert not marker.exists()


def test_pickles_beside_safetensors_are_ignored(folder, tmp_path):
    marker = tmp_path / "ran"
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Hostile(marker)))
    HuggingFacePolicy(folder, TASK)
    assert not marker.exists()


def test_a_cut_weights_file_is_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "Cannot load the model" in refusal(folder)


def test_weights_that_do_not_belong_to_the_configuration_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    before = torch.get_rng_state()
    missing = {name: w for name, w in weights.items() if "layers.1.mlp.up_proj" not in name}
    save_file(missing, folder / "model.safetensors", metadata={"format": "pt"})
    assert "the files hold 15,008; model.layers.1.mlp.up_proj.weight does not fit" in refusal(folder)
    weights["model.norm.weight"] = torch.zeros(7)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.norm.weight" in refusal(folder)
    # transformers fills what is missing with random numbers before it is refused.
    assert torch.equal(torch.get_rng_state(), before)


def test_adapters_and_quantized_models_are_refused(folder):
    edit(folder, "adapter_config.json", base_model_name_or_path="elsewhere")
    assert "holds an adapter; merge it" in refusal(folder)
    (folder / "adapter_config.json").unlink()
    edit(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert "is quantized; give full weights" in refusal(folder)


def test_loading_prints_nothing_and_keeps_the_users_settings(folder, capfd):
    from transformers.utils import logging

    logging.set_verbosity_info()
    try:
        for bars in (False, True):
            (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
            load_model(folder, torch.float32, "sdpa")
            assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.INFO, bars)
    finally:
        logging.set_verbosity_warning()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name in BROKEN if name.startswith("an index") or "owner" in name])
def test_a_folder_that_names_pickles_other_folders_or_code_to_download_is_refused(folder, name):
    BROKEN[name](folder)
    said = refusal(folder)
    assert "config.json" in said or "safetensors" in said
    assert "weights_only" not in said


@pytest.mark.parametrize(("field", "value"), LARGE.items())
def test_a_large_configuration_of_few_weights_is_refused_before_anything_is_made(
    folder, monkeypatch, field, value
):
    """Counted from headers, and on a device without memory: a dense layer of it would take 400 GB."""
    from torch import Tensor
    from transformers import AutoModelForCausalLM

    def loaded(*_, **__):
        raise AssertionError("loaded")

    made = []
    normal = torch.empty
    with torch.device("meta"):
        torch.empty(1)  # torch notes its constructors at the first use, which must not be the one below
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    monkeypatch.setattr(torch, "empty", lambda *a, **k: made.append(found := normal(*a, **k)) or found)
    edit(folder, **{field: value})
    assert "do not fit its config.json, which describes" in refusal(folder)
    assert all(isinstance(one, Tensor) and (one.is_meta or one.numel() < 10**6) for one in made)


def test_no_message_advises_to_open_pickles():
    for error, told in (
        (ValueError("Use weights_only=False.\n\n a \nb"), "a"),
        (ValueError("Set weights_only."), "ValueError"),
        (KeyError("no such"), "KeyError: 'no such'"), (ValueError("in:\n\nb\nc"), "in: b"),
        (OSError(), "OSError"), (ValueError("x" * 501), "x" * 500),
    ):  # fmt: skip
        assert first_line(error) == told


def test_weights_and_those_of_adapters_are_counted_from_headers(tmp_path):
    held = {"model.embed_tokens": (9, 4), "a.q_proj": (4, 6), "b.q_proj": (3, 5), "a.v_proj": (2, 2),
            "a.norm": (7,), "lm_head": (9, 4)}  # fmt: skip
    some = {f"{name}.weight": torch.zeros(shape) for name, shape in held.items()}
    parts = [dict(list(some.items())[:3]), dict(list(some.items())[3:])]
    for n, part in enumerate(parts):
        save_file(part, tmp_path / f"{n}.safetensors", metadata={"format": "pt"})
    (tmp_path / "folder.safetensors").mkdir()
    assert shapes_of(tmp_path) == {f"{name}.weight": list(shape) for name, shape in held.items()}
    assert parameters_of(tmp_path) == 36 + 24 + 15 + 4 + 7 + 36
    assert [adapter_parameters(tmp_path, {"lora": 3} | more) for more in (
        {}, {"lora_targets": "all-linear"}, {"lora_targets": "q_proj"},
        {"lora_targets": "v_proj, norm,lm_head"},
    )] == [3 * 22, 3 * 22, 3 * 18, 3 * (4 + 13)]  # fmt: skip
    assert adapter_parameters("nowhere", {"lora": 3, "adapter": tmp_path}) == parameters_of(tmp_path)
    length = (9).to_bytes(8, "little")
    for broken in (b"", length + b"[1, 2, 3]", length + b"not json!", (1 << 62).to_bytes(8, "little"),
                   length + b'{"a": {}}', length + b'{"a": 3 }'):  # fmt: skip
        (tmp_path / "2.safetensors").write_bytes(broken)
        assert shapes_of(tmp_path) == {}, broken


def test_json_of_a_folder_is_an_object_or_one_message(tmp_path):
    path, saved = tmp_path / "x.json", "give a folder written by save_pretrained."
    assert refuses("", read_json, path) == f"'{tmp_path}' has no x.json; {saved}"
    for text, told in (("[" * 100_000, f"is nested too deeply; {saved}"),
                       ("{", "is not valid JSON: Expecting property name enclosed in double quotes: line 1 "
                        "column 2 (char 1)."),
                       ("3", "holds a int, expected an object with the model's settings.")):  # fmt: skip
        path.write_text(text)
        assert refuses("", read_json, path) == f"{path} {told}"
    path.write_text('{"\u00e9": 1}')
    assert read_json(path) == {"\u00e9": 1}


@pytest.mark.parametrize(
    "name", ["a renamed tensor", "a tokenizer cut", "config.json with hidden_act 'no such'"]
)
def test_a_broken_model_is_found_before_there_is_a_results_folder(folder, tmp_path, name):
    cell = Run(policy="hf", model=str(folder), task="running-sum", prompts=2, group=2, steps=1)
    prepare([cell])
    BROKEN[name](folder)
    refuses(str(folder), run_sweep, [cell], tmp_path / "results", workers=0)
    assert not (tmp_path / "results").exists()


def test_weights_in_two_files_have_the_shapes_of_both(folder):
    weights, whole = load_file(folder / "model.safetensors"), weight_shapes(folder)
    (folder / "model.safetensors").unlink()
    parts = {"model-1.safetensors": [*weights][:2], "model-2.safetensors": [*weights][2:]}
    for file, names in parts.items():
        save_file({name: weights[name] for name in names}, folder / file)
    named = {name: file for file, names in parts.items() for name in names}
    edit(folder, "model.safetensors.index.json", weight_map=named)
    assert weight_shapes(folder) == whole
    again = {f"other.{name}": weight.clone() for name, weight in weights.items()}
    save_file(again, folder / "consolidated.safetensors")  # as Mistral ships the same weights a second time
    assert shapes_of(folder) == whole


def test_an_index_gives_every_file_once_in_order_and_only_safetensors_of_the_folder(tmp_path):
    path = tmp_path / "model.safetensors.index.json"

    def indexed(*names):
        path.write_text(json.dumps({"weight_map": {str(n): name for n, name in enumerate(names)}}))
        return weight_files(tmp_path)

    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.safetensors").write_text("")
    assert indexed("c.safetensors", "a.safetensors", "c.safetensors") == (
        tmp_path / "a.safetensors",
        tmp_path / "c.safetensors",
    )
    advice = "convert the weights with save_pretrained(folder) of transformers."
    for wrong in ("b.safetensors.bin", "sub/b.safetensors", "../b.safetensors", 3, "y" * 201):
        assert refuses("", indexed, "a.safetensors", wrong) == (
            f"{path} names {str(wrong)[:200]!r}, expected names of .safetensors files in the folder; {advice}"
        )
    (tmp_path / "d.safetensors").mkdir()
    assert refuses("", indexed, "a.safetensors", "d.safetensors") == (
        f"{tmp_path / 'd.safetensors'} is missing or not a file; download or save the model again."
    )
    for held in ({}, {"weight_map": {}}, {"weight_map": ["a.safetensors"]}):
        path.write_text(json.dumps(held))
        assert refuses("", weight_files, tmp_path) == (
            f"{path} has no weight_map; save the model again with save_pretrained."
        )


def test_faults_of_a_file_are_all_its_tensors_that_cannot_be_trained(tmp_path):
    fine = {
        str(dtype): torch.tensor([-1e4, 2.0], dtype=dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    }
    bad = {
        "a": torch.tensor([[0.0, 1.0], [-torch.inf, 2.0]]),
        "b": torch.tensor([1, 2], dtype=torch.int8),
        "c": torch.tensor([0.0, torch.nan, 1.0], dtype=torch.bfloat16),
        "d": torch.zeros(2) > 0,
        "e": torch.tensor([torch.inf]),
    }
    save_file(fine | {"empty": torch.zeros(0, 3)} | bad, tmp_path / "x.safetensors")
    said = dict.fromkeys(bad, "holds NaN or infinity") | {"b": "has type int8", "d": "has type bool"}
    assert dict(_faults(tmp_path / "x.safetensors", 0, 0)) == said
