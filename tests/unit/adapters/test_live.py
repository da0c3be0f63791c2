"""Live numbers in TRL and verl-style trainers are those of the diagnosis, under the trainers' own names."""

import math

import numpy as np
import pytest
import torch
from support.made_logs import sequences
from support.refusals import refuses
from support.trl_stub import random_inputs, stub_trainer, tiny_trainer

from testbed.adapters.trl_callback import live_metrics, names_of, verl_metrics
from testbed.data.batch import Batch
from testbed.diagnostics.ratio_metrics import ratio_metrics
from testbed.errors import UserError
from testbed.logs.readers import read_any


def padded(name):
    rows = sequences()
    width = max(len(row["mask"]) for row in rows) + 2
    whole = torch.full((len(rows), width), 7.0 if name != "mask" else 0.0)  # nonsense at padding
    for place, row in zip(whole, rows, strict=True):
        place[: len(row["mask"])] = torch.tensor(row[name], dtype=torch.float32)
    return whole


def test_verl_gets_the_batchs_ratio_metrics_under_its_names():
    data = {"old_log_probs": padded("pi"), "rollout_log_probs": padded("mu"), "response_mask": padded("mask")}
    found = verl_metrics(data)
    mask = padded("mask").bool()
    batch = Batch(
        padded("mu").double(), torch.zeros(mask.shape), mask, torch.zeros(len(mask)),
        torch.zeros(len(mask)).long(),
    )  # fmt: skip
    ours = {name: float(value) for name, value in ratio_metrics(padded("pi").double(), batch).items()}
    for name, value in ours.items():
        if name != "rollout_corr/nonfinite":
            assert found[names_of("verl").get(name, name)] == pytest.approx(value, nan_ok=True), name
    for theirs, name in (("kl", "kl_mu_pi_k1"), ("k3_kl", "kl_mu_pi_k3"), ("chi2_seq", "chi2_sequence")):
        assert found[f"rollout_corr/{theirs}"] == pytest.approx(ours[f"rollout_corr/{name}"])

    class Proto:
        batch = data

    assert verl_metrics(Proto()) == found


def test_names_that_mean_another_number_are_not_borrowed():
    assert names_of("VCPO")["rollout_corr/ess_kish_sequence_raw"] == "staleness/ess_ratio"
    assert names_of("PipelineRL")["rollout_corr/ess_kish_token_raw"] == "rl/ess"
    assert "rollout_corr/rollout_is_eff_sample_size" not in names_of("verl").values()
    refuses("Unknown stack 'verll'", names_of, "verll")


def test_what_is_missing_or_of_another_shape_is_named():
    one = torch.zeros(2, 3)
    with pytest.raises(UserError, match="lacks rollout_log_probs.*calculate_log_probs=True"):
        verl_metrics({"old_log_probs": one, "response_mask": one})
    refuses("expected one", live_metrics, one, one[:, :2], one.bool())
    assert live_metrics(one, one, one.bool()) == {}
    holes = torch.full((2, 3), -1.0).index_put_((torch.tensor(0), torch.tensor(1)), torch.tensor(math.nan))
    known = ~torch.isnan(holes)  # a token that either side does not know is left out
    for sides in ((holes, holes.nan_to_num(-2.0)), (holes.nan_to_num(-2.0), holes)):
        expected = live_metrics(*(side.nan_to_num(0.0) for side in sides), known)
        assert live_metrics(*sides, torch.ones(2, 3).bool()) == expected


@pytest.mark.parametrize("parts", [1, 2])
def test_the_callback_joins_the_micro_batches_of_a_step(parts):
    pytest.importorskip("trl")
    from types import MethodType

    from trl import GRPOTrainer

    from testbed.adapters.trl_callback import DiagnosticsCallback

    logp, inputs = random_inputs(4)
    size = len(logp) // parts
    trainer = stub_trainer(logp)
    trainer.model.training = True
    place = {"rows": slice(0, size)}
    trainer._get_per_token_logps_and_entropies = lambda *a, **k: (
        logp[place["rows"]], torch.zeros_like(logp)[place["rows"]], None,
    )  # fmt: skip
    trainer._compute_loss = MethodType(GRPOTrainer._compute_loss, trainer)
    callback = DiagnosticsCallback(trainer, everything=True)
    for n in range(parts):
        place["rows"] = slice(n * size, (n + 1) * size)
        some = {k: v[place["rows"]] if v.ndim else v for k, v in inputs.items()}
        trainer._compute_loss(None, some)
    callback.on_step_end(None, None, None)
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    mu = inputs["sampling_per_token_logps"]
    ratio = (logp - mu)[mask].exp().detach()
    expected = live_metrics(logp, mu, mask, "") | {
        f"ratio/{name}": float(getattr(ratio, name)()) for name in ("min", "mean", "max")
    }
    logged = trainer._metrics["train"]
    ours = {name: value for name, value in logged.items() if name.startswith("testbed/")}
    assert ours.keys() == {f"testbed/{name}" for name in expected}
    for name, value in expected.items():
        assert ours[f"testbed/{name}"] == [pytest.approx(value, nan_ok=True)], name
    callback.on_step_end(None, None, None)
    assert len(logged["testbed/rollout_corr/ess_floor"]) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_whole_trl_run_logs_the_numbers_and_learns_the_same(tmp_path):
    trl = pytest.importorskip("trl")
    from support.trl_stub import weights

    from testbed.adapters.trl_callback import SHORT, DiagnosticsCallback

    ends, names = [], []
    for heard in (True, False):
        options = {"logging_strategy": "steps", "logging_steps": 1}
        trainer = tiny_trainer(trl.GRPOTrainer, tmp_path / str(heard), **options)
        if heard:
            trainer.add_callback(DiagnosticsCallback(trainer))
        torch.manual_seed(1)
        trainer.train()
        ends.append(weights(trainer))
        rows = [row for row in trainer.state.log_history if "testbed/ess_sequence" in row]
        assert len(rows) == (2 if heard else 0)
        for row in rows:
            named = {name.removeprefix("testbed/") for name in row if name.startswith("testbed/")}
            assert named >= {"ess_sequence", "ess_floor", "ess_token", "kl", "ratio_mean", "ratio_max"}
            assert named <= set(SHORT)
            assert row["testbed/ess_floor"] == pytest.approx(1 / 4)
            assert 0.25 <= row["testbed/ess_sequence"] <= 1 + 1e-6
        names.append({name for row in trainer.state.log_history for name in row})
        trainer.state.save_to_json(str(tmp_path / str(heard) / "trainer_state.json"))
    assert torch.equal(*ends)
    assert {name for name in names[0] - names[1] if not name.startswith("testbed/")} == set()
    log = read_any([tmp_path / "True" / "trainer_state.json"])  # what TRL's own loop and writer made
    assert log.source == "TRL"
    assert len(log.rows) == 2
    assert {"reward/mean", "actor/grad_norm", "actor/clip_share", "rollout_corr/kl_mu_pi_k3"} <= set(log.keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_callbacks_numbers_are_those_derived_by_hand(dtype):
    """log rho is 8.0546875 and 0, then -1: the first needs more bits than bfloat16 has."""
    pytest.importorskip("trl")
    from testbed.adapters.trl_callback import DiagnosticsCallback

    pi, mu = (torch.tensor(rows, dtype=dtype) for rows in ([[-2**-7, -2.0], [-3.0, -1.0]],
                                                           [[-8.0625, -2.0], [-2.0, -9.0]]))  # fmt: skip
    inputs = {"completion_mask": torch.tensor([[1, 1], [1, 0]]), "old_per_token_logps": mu}
    trainer = stub_trainer(pi)
    trainer.model.training = True
    trainer._get_per_token_logps_and_entropies = lambda: (pi, None, None)
    trainer._compute_loss = lambda _, given: (
        trainer._get_per_token_logps_and_entropies() and given["old_per_token_logps"]
    )
    first, second = DiagnosticsCallback(trainer), DiagnosticsCallback(trainer)
    with pytest.raises(KeyError, match="old"):
        trainer._compute_loss(None, {})  # the loss's error, not ours
    trainer._compute_loss(None, inputs)  # of a step that was interrupted
    for callback in (first, second):
        callback.on_step_begin(trainer.args)
    trainer._compute_loss(None, inputs | {"sampling_per_token_logps": None})
    for callback in (first, second):
        callback.on_step_end()
    e, big = math.exp, math.exp(8.0546875)
    wanted = {
        "ratio_max": big, "ratio_mean": (big + 1 + e(-1)) / 3, "ess_floor": 0.5,
        "ess_token": (big + 1 + e(-1)) ** 2 / (3 * (big**2 + 1 + e(-2))),
        "ess_sequence": (big + e(-1)) ** 2 / (2 * (big**2 + e(-2))), "kl": (big - 1 - 8.0546875 + e(-1)) / 3,
    }  # fmt: skip
    logged = {name: trainer._metrics["train"][f"testbed/{name}"] for name in wanted}
    assert logged == {name: [pytest.approx(value, rel=1e-6)] * 2 for name, value in wanted.items()}
    refuses("made for another trainer", first.on_step_begin, object())


def test_other_trainers_are_refused():
    pytest.importorskip("trl")
    from testbed.adapters.trl_callback import DiagnosticsCallback

    refuses("object has no per-token log-probabilities", DiagnosticsCallback, object())
    trainer = stub_trainer(torch.zeros(2, 2), use_liger_kernel=True)
    trainer._compute_loss = np.sum
    refuses("use_liger_kernel", DiagnosticsCallback, trainer)
