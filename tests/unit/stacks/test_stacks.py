"""The tables of public stacks: every rule can be reached, composes, trains, and is on its page."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from support.command_line import refused, told
from support.fixtures import batch_of
from support.refusals import as_written, refuses

from analysis.pages.stack_pages import pages
from testbed.anchors import anchor
from testbed.cli.run_sweep import resolve
from testbed.objectives import objective
from testbed.recipes import recipe
from testbed.recipes.stack_composition import compose
from testbed.stacks import ABSENT, GIVEN, NUMBER, RANGE, Their, stacks

FOLDER = Path(__file__).parents[3] / "docs" / "stacks"
STACKS = sorted(stacks())
every_stack = pytest.mark.parametrize("name", STACKS)
CHOSEN = {GIVEN: "1.5", NUMBER: "1.5", RANGE: "0.5_5.0", ABSENT: None}


def words_for(stack, rule):
    """The settings under which a rule holds, and a number for what it reads and has no default."""
    found = {}
    for name, want in rule.when.items():
        one = want[0] if isinstance(want, tuple) else want
        found[name] = CHOSEN.get(one, str(one).lower() if isinstance(one, bool) else one)
        if one is ABSENT and next(key.default for key in stack.keys if key.name == name):
            found[name] = "0"
        elif not isinstance(one, str | bool) and one not in CHOSEN:
            found[name] = "0"  # a condition of its own: zero
    read = [value.key for value in (*rule.args.values(), rule.coefficient, rule.length)
            if isinstance(value, Their)]  # fmt: skip
    for key in stack.keys:
        if key.name in read and key.default is None and not key.otherwise and not found.get(key.name):
            found[key.name] = "1.5"
    low = {name: "0.5" for name, value in found.items() if name.endswith(("low", "lower")) and value == "1.5"}
    found |= low
    return [f"{name}={value}" for name, value in found.items() if value is not None]


RULES = [(name, index) for name in STACKS for index in range(len(stacks()[name].objectives))]


@pytest.mark.parametrize(("name", "index"), RULES)
def test_every_rule_for_an_objective_is_reached_and_its_recipe_has_a_gradient(name, index):
    stack = stacks()[name]
    rule = stack.objectives[index]
    composed = compose(name, words_for(stack, rule))
    assert composed.objective == rule.name
    assert composed.denominator == rule.denominator
    if rule.aggregation:
        assert composed.aggregation == rule.aggregation
    made = composed.recipe()
    logp, batch = batch_of()
    logp = logp[None].requires_grad_()
    stacked = batch.map(lambda x: x[None])
    (gradient,) = torch.autograd.grad(made.loss(logp, stacked, made.hyper(0, 1)).sum(), logp)
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).any()


@every_stack
def test_rules_for_the_rest_are_reached_too(name):
    stack = stacks()[name]
    for attribute, section in (("advantage", stack.advantages), ("anchor", stack.anchors)):
        for rule in section:
            assert getattr(compose(name, words_for(stack, rule)), attribute) == rule.name
    for rule in stack.terms:
        assert rule.name in [term for term, _, _ in compose(name, words_for(stack, rule)).terms]
    for rule in stack.anchors:
        assert rule.name in anchor


@every_stack
def test_what_nothing_expresses_is_refused_with_the_reason(name):
    stack = stacks()[name]
    for refusal in stack.refusals:
        refused = refuses("", compose, name, refused_words(stack, refusal))
        assert any(other.why in refused for other in stack.refusals), refusal


def refused_words(stack, refusal):
    found = []
    for setting, want in refusal.when.items():
        one = want[0] if isinstance(want, tuple) else want
        options = sorted(each for each in choices(stack, setting) if isinstance(each, str))
        value = {True: "true", False: "false"}.get(one, one) if isinstance(one, bool) else one
        if one is GIVEN:
            value = "1.5" if not options else next(o for o in options if o != "none")
        elif not isinstance(value, str):
            value = "0.5"  # below 1
        found.append(f"{setting}={value}")
    return found


def choices(stack, setting):
    from testbed.recipes.stack_composition import choices_of

    return choices_of(stack, setting)


EXAMPLES = (
    ("verl", "loss_mode=gspo clip_ratio_high=4e-4"),
    ("verl", "rollout_rs=seq_mean_k1 rollout_rs_threshold=0.999_1.002 use_kl_loss=true kl_loss_type=abs"),
    ("trl", "loss_type=dr_grpo max_completion_length=8 beta=0.04"),
    ("areal", "use_decoupled_loss=true rejection_sampling.level=sequence rejection_sampling.upper=1.1"),
    ("areal", "use_decoupled_loss=true prox_logp_method=loglinear"),
    ("nemo-rl", ""),
    ("open-instruct", "loss_denominator=64"),
)


@pytest.mark.parametrize(("name", "words"), EXAMPLES)
def test_the_printed_command_trains_with_the_printed_composition(name, words):
    composed = compose(name, words.split())
    line = shlex.split(composed.run_line("ess-collapse"))
    assert line[:3] == ["testbed", "run", "ess-collapse"]
    cells = resolve(line[2], line[3:])
    (arguments,) = {cell.recipe_args for cell in cells}
    assert recipe["stack"].bind(**dict(arguments))() == composed.recipe()
    setting = composed.anchor if composed.anchor in ("loglinear", "missing") else "recipe"
    assert {cell.anchor for cell in cells} == {setting}


def test_gspo_of_verl_in_our_names():
    composed = compose("verl", ["loss_mode=gspo", "clip_ratio_high=0.0004", "clip_ratio=0.3", "ppo_epochs=2"])
    assert (composed.objective, composed.aggregation, composed.length) == ("gspo@verl", "constant", 1.0)
    assert composed.hyper == {"eps_low": 0.2, "eps_high": 0.0004}
    assert (composed.anchor, composed.passes, composed.unused) == ("recompute", 2, ("clip_ratio",))
    # A null falls back to clip_ratio, which then is read.
    composed = compose("verl", ["clip_ratio_low=null", "clip_ratio=0.3"])
    assert composed.hyper == {"eps_low": 0.3, "eps_high": 0.2, "c": 3.0}
    assert composed.unused == ()


def test_the_recipe_is_the_composition_with_its_length_denominator_and_anchor():
    words = ["rollout_rs=token_k3", "rollout_rs_threshold=0.01", "loss_agg_mode=seq-mean-token-sum"]
    made = compose("verl", words).recipe()
    assert (made.objective, made.aggregation, made.length) == ("kl_rejection", "constant", 1.0)
    assert (made.denominator, made.anchor) == ("kept", "current")
    assert compose("verl", ["bypass_mode=true"]).recipe().anchor == "behavior"


def test_a_range_of_whole_numbers_is_no_number():
    composed = compose("verl", ["rollout_is=token", "rollout_is_threshold=1_2"])
    assert (composed.objective, composed.hyper["low"], composed.hyper["high"]) == ("mis", 1.0, 2.0)


def test_a_setting_with_its_path_or_as_a_flag_is_the_setting():
    long = compose("verl", ["actor_rollout_ref.actor.policy_loss.loss_mode=cispo"])
    assert long == compose("verl", ["loss_mode=cispo"])
    assert compose("slime", ["--eps-clip-high=0.28"]) == compose("slime", ["eps_clip_high=0.28"])
    nested = compose("areal", ["use_decoupled_loss=true", "actor.rejection_sampling.upper=2"])
    assert nested.hyper["cap"] == 2


def test_defaults_of_one_setting_may_depend_on_another():
    assert compose("trinity", ["policy_loss_fn=cispo"]).hyper == {"eps_low": 1.0, "eps_high": 0.28}
    assert compose("trinity", ["policy_loss_fn=gspo"]).hyper == {"eps_low": 3e-4, "eps_high": 4e-4}
    assert compose("trinity", ["clip_range=0.1"]).hyper == {"eps_low": 0.1, "eps_high": 0.1, "c": 3.0}


@pytest.mark.parametrize(
    "words",
    ["vrel", "verl clip_ration_high=0.3", "verl loss_mode=gsp", "verl clip_ratio_high",
     "verl clip_ratio_c=3 actor.clip_ratio_c=4", "verl clip_ratio_c=three", "verl clip_ratio_c=true",
     "verl clip_ratio_c=inf", "verl clip_ratio_c=null", "verl use_kl_loss=3",
     "verl rollout_rs=token_k1,token_k3", "verl rollout_is=token rollout_is_threshold=a_b",
     "verl rollout_rs=token_k3", "verl loss_mode=gspo rollout_is=token",
     "verl rollout_is=token rollout_is_threshold=null", "open-instruct kl_estimator=7"],
)  # fmt: skip
def test_bad_words_are_one_message_with_candidates_and_exit_code_two(capsys, words):
    err = refused(capsys, "objectives", "from", *words.split())
    as_written(err)
    assert err.startswith("error: ")


def printed(capsys, *words):
    return told(capsys, "objectives", "from", *words)


def test_the_command_prints_what_it_composes(capsys):
    words = ["verl", "loss_mode=gspo", "clip_ratio_high=4e-4", "clip_ratio=0.3", "use_kl_loss=true"]
    text = printed(capsys, *words)
    assert "gspo@verl(eps_low=0.2, eps_high=0.0004)" in text
    assert "constant (length=1)" in text
    assert "0.001 kl_penalty@verl" in text
    assert "Without effect here: clip_ratio." in text
    assert text.rstrip().endswith(
        shlex.quote("recipe_args.config=" + " ".join(words[1:]).replace("4e-4", "0.0004"))
    )
    facts = json.loads(printed(capsys, *words, "--json"))
    assert facts["hyperparameters"] == {"eps_low": 0.2, "eps_high": 0.0004}
    assert facts["terms"] == [{"objective": "kl_penalty@verl", "coefficient": 0.001, "hyperparameters": {}}]
    assert facts["unused"] == ["clip_ratio"]
    assert f"\n{facts['run']}\n" in text


def test_the_pages_are_what_the_tables_say():
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    again = "run `testbed evidence pages atlas` and commit what it writes"
    assert set(written) == set(pages()), again
    for name, text in pages().items():
        assert written[name] == text, f"docs/stacks/{name} is out of date: {again}"


@every_stack
def test_a_page_has_every_setting_and_every_trap_and_names_only_what_exists(name):
    stack, text = stacks()[name], pages()[f"{name}.md"]
    assert all(f"| `{key.name}`" in text for key in stack.keys)
    assert len(stack.traps) >= 4
    assert all(f"- {trap}\n" in text for trap in stack.traps)
    variants = set(re.findall(r"`(\w+@[\w-]+)`", text))
    assert variants <= set(objective) | {rule.name for rule in stack.advantages}
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    for block in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}) == 1


def test_the_index_lists_the_objectives_that_are_divided_by_t():
    text = pages()["index.md"]
    for name, entry in objective.items():
        divided = entry.promises.get("on_policy") == "1/T"
        assert (f"`{name}`" in text.split("length 1:")[1].split("A stack that")[0]) == divided
    assert all(f"({name}.md)" in text for name in STACKS)


def test_defaults_of_trl_are_those_of_its_configuration():
    trl = pytest.importorskip("trl")
    theirs = {name: item.default for name, item in trl.GRPOConfig.__dataclass_fields__.items()}
    ours = {key.name: key.default for key in stacks()["trl"].keys}
    assert theirs.pop("max_completion_length") == 512  # the width of the batch stands for it here
    del ours["max_completion_length"]
    assert ours == {name: theirs[name] for name in ours}
