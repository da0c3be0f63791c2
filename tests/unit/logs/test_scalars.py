"""Numbers by step of other stacks: read as their loggers write them, mapped, and judged at peers' limits."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from support import made_logs
from support.log_mutations import trl
from support.refusals import refuses

from testbed.diagnostics.peer_limits import Alert, Threshold
from testbed.logs.readers import read, read_any, trl_scalars
from testbed.logs.scalars import (
    HOW,
    LIMITS,
    LOWER,
    STACKS,
    Name,
    ScalarLog,
    names,
    nothing_known,
    read_as,
    scalar_log,
    stack_of,
    verdict,
)  # fmt: skip

GRPO = {
    "loss": 0.02, "grad_norm": 0.4, "learning_rate": 1e-6, "num_tokens": 512.0, "reward": 0.5,
    "reward_std": 0.2, "rewards/exact/mean": 0.5, "completions/mean_length": 81.5, "kl": 0.001,
    "entropy": 0.7, "clip_ratio/region_mean": 0.01, "clip_ratio/low_mean": 0.0, "epoch": 0.1,
}  # fmt: skip
VERL = {
    "actor/entropy": 0.4, "actor/pg_loss": 0.01, "actor/grad_norm": 0.3, "actor/pg_clipfrac": 0.002,
    "critic/score/mean": 0.6, "response_length/mean": 300.0, "rollout_corr/kl": 0.002,
    "rollout_corr/k3_kl": 0.001, "rollout_corr/chi2_token": 0.01, "rollout_corr/chi2_seq": 0.3,
    "rollout_corr/rollout_is_mean": 0.99, "rollout_corr/rollout_is_eff_sample_size": 0.98,
    "training/global_step": 1, "perf/throughput": 1000.0,
}  # fmt: skip


VERL_ROW = {"input": "1+1=", "output": "2", "score": 1.0, "step": 3}


def trainer_state(folder, rows):
    """Write a checkpoint's state as transformers does; test_genuine_files has its own class write one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(
        json.dumps({"global_step": len(rows), "log_history": rows}, indent=2)
    )
    return folder / "trainer_state.json"


def verl_lines(path, rows):
    """Write lines as verl's file logger does: NaN becomes null."""
    made_logs._lines(path, [{"step": step, "data": row} for step, row in enumerate(rows, start=1)])
    path.write_text(path.read_text().replace("NaN", "null"))
    return path


def said(log):
    return verdict(log, log.alerts())


def test_a_sound_log_is_healthy_and_one_without_limits_undecided(tmp_path):
    log = read_any([verl_lines(tmp_path / "run.jsonl", [VERL] * 4)])
    assert log.source == "verl"
    assert log.rows[0]["rollout_corr/chi2_sequence"] == 0.3
    limited = {alert.threshold.metric for alert in log.alerts()}
    assert len(limited) == 5  # two of them on the mean weight
    assert said(log) == (
        "Healthy as far as scalars tell: the 6 limits that peers document were not crossed at 4 logged steps."
    )
    near = GRPO | {"sampling/sampling_logp_difference/mean": 0.01}
    log = read_any([trainer_state(tmp_path / "near", [near | {"step": 1}])])
    assert said(log).startswith("Healthy as far as scalars tell: the one limit that applies was not crossed")
    assert said(log).endswith("; one was compared with a lower bound alone.")
    log = read_any([trainer_state(tmp_path / "trl", [GRPO | {"step": 1}])])
    assert said(log).startswith("Undecided: no metric of the log has a limit that a peer documents. TRL logs")


def test_flat_lines_and_keys_with_dots_are_read_and_the_stack_is_told_by_its_keys(tmp_path):
    rows = [{"step": n, "optim/kl_sample_train_v1": 0.02, "env/all/reward/total": 0.5} for n in (0, 1)]
    made_logs._lines(tmp_path / "metrics.jsonl", [*rows, {"time/total": 3.0}])
    log = read_any([tmp_path])
    assert log.source == "tinker-cookbook"
    assert "their optim/kl_sample_train_v1): above 0.01 at 2 of 2 steps, since step 0" in said(log)
    assert log.notes == ("1 of 3 lines have no step: left out.",)
    dotted = [{"step": 3, "rollout_corr.kl": 0.02, "actor.grad_norm": math.inf}]
    made_logs._lines(tmp_path / "metrics.jsonl", dotted)
    log = read_any([tmp_path / "metrics.jsonl"])
    assert (log.source, log.rows[0]["rollout_corr/kl_mu_pi_k1"]) == ("verl", 0.02)
    assert said(log).startswith("Look at actor.grad_norm")


def test_checkpoints_of_a_run_are_one_log_and_tokens_beside_them_go_first(tmp_path):
    trainer_state(tmp_path / "checkpoint-2", [GRPO | {"step": n} for n in (1, 2)])
    trainer_state(tmp_path / "checkpoint-10", [GRPO | {"step": n, "reward": 0.9} for n in (1, 2, 10)])
    log = read_any([tmp_path])
    assert [(row["step"], row["reward/mean"]) for row in log.rows] == [(1, 0.9), (2, 0.9), (10, 0.9)]
    assert "2 files are one run" in log.notes[0]
    trl(tmp_path / "completions")
    log = read_any([tmp_path])
    assert log.source == "TRL"
    assert len(log.sequences) == 2
    assert "Scalars of TRL lie beside the tokens" in log.notes[-1]
    refuses("holds numbers by step of TRL, no tokens", read, [tmp_path / "checkpoint-2"])


def test_one_file_of_several_tells_trl_s_other_trainer(tmp_path):
    first = trainer_state(tmp_path / "a", [GRPO | {"step": n} for n in (1, 2)])
    late = trainer_state(tmp_path / "b", [GRPO | {"step": 3}, {"step": 4, "kl": 0.5, "ratio": 1.25}])
    for paths in ([first, late], [late, first]):
        log = trl_scalars.read(paths)
        assert (log.source, len(log.rows)) == ("TRL async", 4)
        assert log.notes == ("2 files are one run; at a step that several have, the last file counts.",)
    assert trl_scalars.read([first]).notes == ()
    assert trl_scalars.read([first]).source == "TRL"


@pytest.mark.parametrize(
    ("name", "held"),
    [("trainer_state.json", {"global_step": 1, "epoch": 0.5}),
     ("trainer_state.json", {"global_step": 1, "log_history": []}),
     ("trainer_state.json", {"global_step": 1, "log_history": {"step": 1}}),
     ("trainer_state.json", {"global_step": 1, "log_history": [{"kl": 1}]}),
     ("trainer_state.json", {"global_step": 1, "log_history": [{"step": 1, "rewrd": 1}]}),
     ("a.jsonl", {"step": 1, "metrics": {}}), ("a.jsonl", {"step": 1, "data": [1]}),
     ("a.jsonl", {"step": 1, "data": {"rollout_corr/k1": 1}}),
     ("a.jsonl", {"step": 1.5, "data": {"actor/entropy": 1}}),
     ("a.jsonl", {"step": 1, "data": {"actor/entropy": "1"}}),
     ("a.jsonl", {"train/steps": 1, "train/policy_loss": 0.1, "train/kl": 0.1, "train/actor_lr": 1e-6}),
     ("a.jsonl", {"train/global_step": 1, "train/policyLoss": 0.1}),
     ("a.jsonl", VERL_ROW | {"inputs": VERL_ROW["input"], "input": None}),
     ("a.jsonl", [VERL_ROW, {k + "s" * (k == "score"): v for k, v in VERL_ROW.items()}])],
)  # fmt: skip
def test_a_refusal_names_the_nearest_format_and_what_is_missing(name, held, tmp_path):
    (tmp_path / name).write_text(json.dumps(held, indent=2 if name.endswith(".json") else None))
    refuses(".", read_any, [tmp_path / name])


def test_every_limit_can_be_reached_from_some_stack():
    known = {name.metric for stack in STACKS for name in names(stack).values()}
    own = {"rollout_corr/rollout_is_mean", "rollout_corr/pareto_k_sequence"}  # of verl, of our callback
    twice = {"rollout_corr/ess_kish_sequence_clamped"}  # verl's key is read as the token's
    assert {limit.metric for limit in LIMITS} <= known | own | twice


def test_a_share_in_percent_is_told_by_its_size(tmp_path):
    log = read_any([verl_lines(tmp_path / "run.jsonl", [VERL, VERL | {"actor/pg_clipfrac": 12.5}])])
    told = "it is a share of at most 1, 12.5 here. In percent?"
    assert said(log) == f"Look at actor/clip_share (their actor/pg_clipfrac): {told}"


SOON = Alert(Threshold("m", 0.25, True, "src", "k"), 4.0, 2, 5, 0.123456, "note")
LATE = replace(SOON, first=7.0, threshold=Threshold("n", 2.0, False, "other", "l"), note="")
NEVER = replace(LATE, first=math.nan, crossed=0)


@pytest.mark.parametrize(
    ("broken", "found", "source", "said"),
    [({"a": (5.0, 1, 9), "b": (3.0, 2, 8)}, [SOON], "verl",
      "Look at b: it is not finite at 2 of 8 logged steps, since step 3."),
     ({}, [NEVER, LATE, SOON], "verl",
      "Look at m (their k): below 0.25 at 2 of 5 steps, since step 4, 0.123 at "
      "worst (src; note). Crossed later or as early: 1 more limit."),
     ({}, [LATE], "verl",
      "Look at n (their l): above 2 at 2 of 5 steps, since step 7, 0.123 at worst (other)."),
     ({}, [NEVER, replace(NEVER, steps=1, note=f"x; {LOWER}")], "verl",
      "Healthy as far as scalars tell: the 2 limits that peers document were not crossed at 5 logged "
      "steps; one was compared with a lower bound alone."),
     ({}, [replace(NEVER, steps=1), replace(NEVER, note="it can never fire")], "verl",
      "Healthy as far as scalars tell: the one limit that applies was not crossed at 1 logged step."),
     ({}, [replace(NEVER, note="it can never fire")], "TRL async",
      f"Undecided: no metric of the log has a limit that a peer documents. {HOW['TRL']}"),
     ({}, [], "miles", "Undecided: no metric of the log has a limit that a peer documents.")],
)  # fmt: skip
def test_one_line_names_what_comes_first(broken, found, source, said):
    assert verdict(ScalarLog(source, (), {}, broken), found) == said


def test_entries_become_rows_by_step_with_the_best_key_of_each_metric():
    entries = [
        ("p", 3, {"actor/entropy": 0.5, "rollout_corr/kl": 1, "note": "x", "flag": True, "loss": math.inf}),
        ("q", 1.0, {"testbed/kl": 0.25, "rollout_corr/k3_kl": 9.0, "step": 1, "loss": None, "big": 10**400}),
        ("r", 3, {"rollout_corr/kl": 2, "actor.pg_loss": math.nan, "loss": 0.5, "a\x1b": 1.0}),
        ("s", 4, {"loss": -math.inf, "rollout_corr/kl": None}),
    ]
    log = scalar_log("verl", entries, ["n", "n"])
    assert log.source == "verl"
    kl = "rollout_corr/kl_mu_pi_k"
    assert str(log.rows) == str((
        {"step": 1.0, f"{kl}3": 0.25}, {"step": 3.0, "actor/entropy": 0.5, f"{kl}1": 2.0},
        {"step": 4.0, f"{kl}1": math.nan},
    ))  # fmt: skip
    assert log.keys == {
        f"{kl}3": ("testbed/kl", ""), "actor/entropy": ("actor/entropy", ""),
        f"{kl}1": ("rollout_corr/kl", ""),
    }  # fmt: skip
    assert log.broken == {"loss": (1.0, 2, 3), "actor.pg_loss": (3.0, 1, 1)}
    assert log.unread == ("loss", "actor.pg_loss", "a\\x1b", "rollout_corr/k3_kl", "big")
    assert log.notes == ("n",)
    assert {row["metric"]: (row["steps"], row["first"], row["last"]) for row in log.table()}[f"{kl}1"] == (
        1, 2.0, 2.0,
    )  # fmt: skip
    shown = {"metric": "m", "their name": "k", "steps": 3, "first": 2.0, "last": 3.0, "smallest": 1.0}
    found = ScalarLog("x", tuple({"step": n, "m": m} for n, m in enumerate((2.0, 1.0, math.nan, 3.0))),
                      {"m": ("k", "d"), "gone": ("l", "")})  # fmt: skip
    assert found.table() == [shown | {"largest": 3.0, "differs": "d"}]
    refuses(r"^t: step is missing; expected the optimizer step as a", scalar_log, "verl", [("t", None, {})])


def test_keys_are_ranked_ours_first_then_equal_then_different_numbers():
    known = {"a/b": Name("m"), "kl": Name("n", "differs"), "c.d/e": Name("o")}
    for key, wanted in (
        ("testbed/kl", (0, Name("rollout_corr/kl_mu_pi_k3"))),
        ("testbed.kl", (0, Name("rollout_corr/kl_mu_pi_k3"))), ("testbed/x/y", (0, Name("x/y"))),
        ("c.d/e", (1, Name("o"))), ("a/b", (1, Name("m"))), ("a.b", (1, Name("m"))), ("kl", (2, known["kl"])),
        ("rollout_corr/ess_floor", (1, Name("rollout_corr/ess_floor"))), ("rollout_corr/nosuch", None),
        ("loss", None), ("token_mult_prob_error", (1, Name("token_mult_prob_error"))),
        ("actor/entropy", None), ("a/b.c", None), ("train/kl", (2, known["kl"])), ("train/x", None),
        ("rollout_corr/rollout_is_mean", (1, Name("rollout_corr/rollout_is_mean"))),
    ):  # fmt: skip
        assert read_as(key, known) == wanted, key
    assert names("miles")["ess_ratio"] == Name("rollout_corr/ess_kish_token_raw", "averaged over samples")
    twice = names("verl")["rollout_corr/rollout_is_eff_sample_size"]
    assert twice.metric == "rollout_corr/ess_kish_token_clamped"  # the first listed
    gap = names("TRL")["sampling/sampling_logp_difference/mean"]
    assert (gap.metric, gap.differs) == ("token_mult_prob_error", LOWER)
    assert [gap.value(x) for x in (0.0, 1.0, 1e9)] == pytest.approx([1, math.e, math.exp(700)])
    both = names("TRL async")
    assert both["kl"].metric == "rollout_corr/kl_mu_pi_k3"
    assert both["entropy"] == names("TRL")["entropy"]
    assert [stack_of(keys) for keys in (
        [], ["x"], ["rl/ess", "x"], ["ess_ratio", "rollout_corr/kl"], ["reward", "kl", "grad_norm"],
        ["train/reward", "train/kl", "train/vllm_kl"],
    )] == ["", "", "PipelineRL", "verl", "TRL", "OpenRLHF"]  # fmt: skip


def test_alerts_name_the_stacks_key_and_how_its_number_differs():
    rows = tuple({"step": float(n), "token_mult_prob_error": 1.0 + n / 10} for n in range(2))
    (found,) = ScalarLog("TRL", rows, {"token_mult_prob_error": ("gap", LOWER)}).alerts()
    limit = next(limit for limit in LIMITS if limit.metric == "token_mult_prob_error")
    assert found == Alert(replace(limit, key="gap"), 1.0, 1, 2, 1.1, LOWER)
    floor = {"step": 0.0, "rollout_corr/ess_kish_token_clamped": 0.9, "rollout_corr/ess_floor_token": 0.5}
    (found,) = ScalarLog("verl", (floor,), {"rollout_corr/ess_kish_token_clamped": ("k", "d")}).alerts()
    assert found.note == "it can never fire: the smallest value of N sequences is 1/N = 0.5; d"


def test_the_error_for_unknown_numbers_names_the_nearest_format():
    wanted = list(names("TRL"))
    keys = ["zzzzzzzz", "entropi", *"abcdefgh"]
    assert str(nothing_known(keys, "TRL")) == (
        "None of the keys zzzzzzzz, entropi, a, b, c, d, e, f is a metric known here. The nearest format is "
        f"TRL's, without {', '.join(wanted[:4])} or another of its {len(wanted)} names. Did you mean "
        "'entropy'? `testbed list metrics` has all of them."
    )
    near = [*[f"z{n:02}" * 4 for n in range(49)], "entropi"]
    assert "Did you mean 'entropy'?" in str(nothing_known(near, "TRL"))
    assert "Did you mean" not in str(nothing_known(["z" * 9, *near], "TRL"))
    assert str(nothing_known([], "")).startswith("No value is a number")
    assert f"verl's, without {', '.join(list(names('verl'))[:4])} or" in str(nothing_known(["z"], ""))


def _rewards(reward, **more):
    rows = tuple(
        {"step": 5.0 * n, "reward/mean": value} | {name: each[n] for name, each in more.items()}
        for n, value in enumerate(reward)
    )
    return ScalarLog("verl", rows, {"reward/mean": ("critic/score/mean", "")})


def test_a_reward_that_lost_its_gain_is_named_where_no_limit_is_crossed():
    """Such a log was "undecided": no peer documents a limit of the reward."""
    rise, entropy = np.linspace(0.5, 0.7, 30), np.linspace(0.6, 0.05, 60)
    reward = np.concatenate([rise, np.linspace(0.7, 0, 30)]) + 0.01 * (np.arange(60) % 2)
    assert verdict(_rewards(reward, **{"actor/entropy": entropy}), []) == (
        "Look at reward/mean (their critic/score/mean): it rose from 0.51 to 0.701 until step 150 and "
        "fell to 0.0308, while actor/entropy went from 0.6 to 0.05."
    )
    assert verdict(_rewards(rise), []).startswith("Undecided")
    assert verdict(_rewards([*rise, *[math.nan, math.inf] * 9]), []).startswith("Undecided")
    noise = np.random.default_rng(0).normal(size=(400, 60))  # no trend: alarms in at most 2 of 100 logs
    assert sum(verdict(_rewards(row), []).startswith("Look") for row in noise) <= 8
