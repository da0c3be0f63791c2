"""Command lines and what they print, compared whole: facts of names, exact weights, settings, refusals."""

import os

import pytest
from support.command_line import call
from support.pins import pinned

COMMANDS = (
    "exact cispo,minpro vocabulary=3 length=2 drift=1 signal=R-b baseline=0.3",
    "exact ppo_clip,gspo,ratio:prefix vocabulary=2 length=2",
    "exact ratio:sequence vocabulary=2 length=2 group=2 advantage=leave_one_out --json",
    "exact ppo_clip drift=x", "exact gone",
    "exact ppo_clip,m2po drift=0.5 signal=A vocabulary=2 length=2 --json",
    "exact ppo_clip vocabulary=2 length=2 --json",
    "objectives from verl loss_mode=gspo clip_ratio_low=3e-4 clip_ratio_high=4e-4",
    "objectives from trl loss_type=dr_grpo epsilon_high=0.28 --json",
    "objectives from verl loss_mode=vanilla rollout_is=token rollout_is_threshold=3",
    "objectives from verl loss_mode=x",
    "objectives from slime use_tis=true --json", "objectives from gone a=1",
    "objectives from trl loss_typ=grpo",
    "objectives compare ppo_clip m2po tis", "objectives compare ppo_clip dual_clip --json",
    "objectives compare gone", "objectives compare kto dpo",
    "show ppo_clip --kind objective", "show ppo_clip@pipelinerl --kind objective",
    "show dual_clip --kind objective", "show tis@verl --json",
    "show m2po --cite", "show m2po cispo --cite", "show m2po cispo --cite --bibtex",
    "show m2po cispo tis --cite --json", "show running-sum --cite",
    "show geometric", "show latency --json",
    "show ppo_clip --kind gone", "show accuracy", "show exact",
    "run gone", "run staleness steps=x --dry-run", "run staleness recipe=grpo lag=0 seed=0,1 --dry-run",
    "run staleness recipe=tis,grpo lag=4 --dry-run --json",
    "run staleness recipe=grpo recipe_args.eps_low=0.1,0.2 lag=0 seed=0 --dry-run",
    "run staleness lagg=2 --dry-run", "status gone", "status . --json",
    "merge a b", "merge gone --out x", "list gone", "list objectives family=regression",
    "list objectives family=x", "list schedules", "list schedules --json",
    "list engines", "list anchors --json", "list advantages", "new mine.py", "new", "doctor --gone",
    "pipeline slots=4 batch=4 group=2 --then gone",
    "pipeline slots=4 batch=4 group=2 --then run staleness lag=x --dry-run",

    "pipeline slots=8 batch=8 group=4 --then run staleness recipe=grpo lag=0 seed=0 --dry-run --json",
    "compare gone", "watch",
    "pipeline slots=4 batch=4 group=2 --then run --gone",
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_says_what_it_said(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *words.split())
    made = {
        path: (tmp_path / path).read_text() for path in sorted(os.listdir(tmp_path)) if path.endswith(".py")
    }
    pinned("cli", words.replace(" / ", "/"), {"code": code, "out": out, "err": err, "made": made})
