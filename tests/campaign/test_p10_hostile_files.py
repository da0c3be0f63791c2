"""P10: reading results, models and answers never runs code."""

import hashlib
import io
import itertools
import json
import pickle
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support import tiny_models
from support.broken_models import Hostile
from support.refusals import refuses
from support.small_store import PACKS, filled

from testbed.errors import UserError
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.text_task import task_for_model
from testbed.results.store import Store, read


def payloads(marker: Path) -> dict[str, bytes]:
    """Return files that run code in a reader that trusts them."""
    pickled = pickle.dumps(Hostile(marker))
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Hostile(marker)], dtype=object), allow_pickle=True)
    torch.save({"weight": Hostile(marker)}, archive)
    field = pa.field("x", pa.int64()).with_metadata(
        {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickled}
    )
    sink = pa.BufferOutputStream()
    schema = pa.schema([field], metadata={b"pandas": pickled, b"testbed": b"{}"})
    pq.write_table(pa.table([pa.array([1])], schema=schema), sink)
    source = f"open({str(marker)!r}, 'w')\n".encode()
    return {
        "a pickle": pickled, "an npy of objects": array.getvalue(), "a torch archive": archive.getvalue(),
        "a pickled extension type in Parquet metadata": sink.getvalue().to_pybytes(), "Python source": source,
        "an opcode pickle": f"cos\nsystem\n(S'touch {marker}'\ntR.".encode(),
    }  # fmt: skip


def test_hostile_files_in_a_results_folder_are_data(tmp_path, campaign):
    marker = tmp_path / "ran"
    hostile = payloads(marker)
    pickle.loads(hostile["a pickle"]).close()
    assert marker.exists(), "the payload works where it is trusted"
    marker.unlink()
    for number, body in enumerate(hostile.values()):
        folder = tmp_path / str(number)
        filled(folder, PACKS[1:])
        for pack in (PACKS[0], PACKS[1]):
            name = f"{pack.id}-{hashlib.sha256(body).hexdigest()}.parquet"
            (folder / "packs" / name).write_bytes(body)
            (folder / "failures" / f"{pack.id}.json").write_bytes(body)
            (folder / "provenance" / f"{pack.id}.json").write_bytes(body)
        (folder / "packs" / "extra.pkl").write_bytes(body)
        now = Store(folder).status()
        assert (now.done, now.failed, now.quarantined) == (5, 0, 2)
        assert len(set(read(folder)["cell"].to_pylist())) == 5
        (folder / "sweep.json").write_bytes(body)
        with pytest.raises(UserError, match="cannot be read as the plan"):
            Store(folder)
    assert not marker.exists()
    campaign.tried("pickles, object arrays and source as every file of a results folder", 6 * len(hostile))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_model(tmp_path_factory.mktemp("model") / "good", tiny_models.CONFIGS["llama"]())


def refused_or_usable(folder: Path) -> bool:
    """Open a model folder; return whether it was refused."""
    try:
        HuggingFacePolicy(folder, tiny_models.Echo())
    except UserError:
        return True
    return False


@pytest.mark.slow
def test_hostile_files_in_a_model_folder_are_refused_or_ignored(good, tmp_path, campaign):
    marker = tmp_path / "ran"
    hostile = payloads(marker)
    places = ("model.safetensors", "config.json", "tokenizer_config.json", "generation_config.json")
    bystanders = ("pytorch_model.bin", "optimizer.pt", "modeling_llama.py", "tokenizer.pkl", "chat.jinja")
    refused = 0
    for body in hostile.values():
        for name in (*places, *bystanders):
            folder = shutil.copytree(good, tmp_path / "model")
            (folder / name).write_bytes(body)
            refused += refused_or_usable(folder)
            shutil.rmtree(folder)
    assert refused >= 2 * len(hostile), "weights and configurations that are none are refused"
    assert not marker.exists()
    tried = len(hostile) * (len(places) + len(bystanders))
    campaign.tried("pickles, object arrays and source as every file of a model folder", tried)


def test_models_and_tokenizers_that_name_code_of_their_own_are_refused(good, tmp_path, campaign):
    marker, task = tmp_path / "ran", tiny_models.Echo()
    source = f"open({str(marker)!r}, 'w').write('ran')\nfrom transformers import LlamaConfig as C\n"
    targets = "modeling_hostile.C", ["modeling_hostile.C", None], "someone/else--modeling_hostile.C"
    kinds = "AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"
    files = ("config.json", {}), ("config.json", {"model_type": "hostile"}), ("tokenizer_config.json", {})
    every = list(itertools.product(files, kinds, targets))
    for (name, more), kind, target in every:
        folder = shutil.copytree(good, tmp_path / "model")
        (folder / "modeling_hostile.py").write_text(source)
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**content, **more, "auto_map": {kind: target}}))
        refuses("'auto_map': the .* asks to run Python code", HuggingFacePolicy, folder, task)
        refuses("auto_map", task_for_model, task, folder)
        shutil.rmtree(folder)
    assert not marker.exists()
    campaign.tried("auto_map in a configuration or a tokenizer", len(every))


def header_of(content: bytes) -> tuple[dict, bytes]:
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def spoiled(content: bytes, dice: random.Random) -> bytes:
    """Return a safetensors file with a header that lies, or does not end."""
    header, body = header_of(content)
    name = dice.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    lie = dice.randrange(7)
    if lie == 0:
        return struct.pack("<Q", dice.choice([0, 2**63, 2**40, len(content) * 9])) + content[8:]
    if lie == 1:
        entry["data_offsets"] = [0, 2**50]
    elif lie == 2:
        entry["shape"] = [2**31, 2**31]
    elif lie == 3:
        entry["dtype"] = dice.choice(["F128", "PICKLE", "", None])
    elif lie == 4:
        entry["data_offsets"] = entry["data_offsets"][::-1]
    elif lie == 5:
        header = {"x" * 10: header}
    else:
        entry["data_offsets"] = [entry["data_offsets"][0] - 4, entry["data_offsets"][1] - 4]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_lying_safetensors_headers_are_refused(good, tmp_path, campaign):
    trials = campaign.trials(short=12, full=150)
    dice = random.Random(10)
    folder = shutil.copytree(good, tmp_path / "model")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    for _ in range(trials):
        weights.write_bytes(spoiled(content, dice))
        assert refused_or_usable(folder)
    campaign.tried("safetensors headers that lie about lengths, shapes, types and places", trials)


ANSWERS = (
    "__import__('pathlib').Path('{marker}').touch()", " __import__('os').system('touch {marker}')\n",
    "open('{marker}', 'w')", "[open('{marker}', 'w')]", "(lambda: open('{marker}', 'w'))()",
    "exec(\"open('{marker}', 'w')\")", "eval(\"open('{marker}', 'w')\")", "1 if open('{marker}', 'w') else 2",
    "[x for x in [open('{marker}', 'w')]]", "{{open('{marker}', 'w')}}", "f'{{open(\"{marker}\", \"w\")}}'",
    "(1).__class__.__base__.__subclasses__()", "''.__class__.__mro__[1].__subclasses__()", "print(9)",
    "open('{marker}', 'w') \\\n\n", "x := open('{marker}', 'w')", "breakpoint()", "exit()", "quit(3)",
    "9**9**9", "(9**12)**12", "9!!!!!!", "1e99999999", "'a'*10**9", "[0]*10**9", "1+" * 300 + "1", "(" * 500,
    "[" * 3000, "\0", "factorial(99999)", "Integral(x**x, (x, 0, oo))", "__import__('time').sleep(99)",
    "sin(" * 40 + "x" + ")" * 40, "globals()", "symbols('x').func.__globals__",
)  # fmt: skip
EVALUATING = (
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "number_sorting",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix", "string_insertion",
)  # fmt: skip


@pytest.mark.slow
def test_hostile_answers_are_not_run_by_any_scorer_that_evaluates(tmp_path, campaign):
    from envs.tokens.reasoning_gym import ReasoningGym
    from envs.tokens.safe_scorer import isolated

    marker = tmp_path / "ran"
    names = EVALUATING if campaign.full else ("countdown", "spiral_matrix", "puzzle24")
    for name in names:
        task = ReasoningGym(dataset=name, survey=1, response_length=8)
        item = task.item(0)
        with isolated(silent=True):
            for text in ANSWERS:
                score = task.scorer.score(
                    text.format(marker=marker) if "marker" in text else text, item.entry
                )
                assert 0.0 <= score < 1.0, (name, text)
                assert not marker.exists(), (name, text)
        assert task.scorer.refused
    campaign.tried(
        f"{len(ANSWERS)} hostile answers to each of {len(names)} evaluating scorers",
        len(ANSWERS) * len(names),
    )
