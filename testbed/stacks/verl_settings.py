"""verl: actor_rollout_ref.actor and algorithm.rollout_correction."""

from typing import Any

from testbed.stacks import ABSENT, GIVEN, NUMBER, RANGE, Key, Refusal, Rule, Stack, Their, lower, upper

ACTOR, CORRECTION = "actor_rollout_ref.actor", "algorithm.rollout_correction"
LEVELS = {"token": "token", "seq_sum": "sequence_sum", "seq_mean": "sequence_mean", "seq_max": "sequence_max"}
K1 = ("token_k1", "seq_sum_k1", "seq_mean_k1")
K23 = tuple(f"{level}_{kind}" for level in LEVELS for kind in ("k2", "k3"))


def level_of(option: str) -> str:
    """Return sequence_sum of "seq_sum_k1"."""
    return LEVELS[option.rpartition("_")[0]]


def low_of(threshold: Any) -> float:
    """Return the lower bound of "0.6_1.4", and 1/x of a single number x."""
    return lower(threshold) if isinstance(threshold, str) else 1 / threshold


def high_of(threshold: Any) -> float:
    """Return the upper bound of "0.6_1.4", and a single number itself."""
    return upper(threshold) if isinstance(threshold, str) else float(threshold)


CLIP = {"eps_low": Their("clip_ratio_low"), "eps_high": Their("clip_ratio_high")}
DUAL = {**CLIP, "c": Their("clip_ratio_c")}
PLAIN = {"loss_mode": "vanilla", "bypass_mode": False}
WEIGHED = {**PLAIN, "rollout_is": ("token", "sequence"), "rollout_rs": ABSENT}
LEVEL = {"level": Their("rollout_is")}
BYPASS = {"loss_mode": ("vanilla", "bypass_mode"), "bypass_mode": True}

STACK = Stack(
    name="verl",
    title="verl",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py, rollout_corr_helper.py; "
    "defaults: verl/trainer/config/actor/actor.yaml, algorithm/rollout_correction.yaml",
    keys=(
        Key("loss_mode", "vanilla", f"{ACTOR}.policy_loss"),
        Key("clip_ratio", 0.2, ACTOR, note="read only where clip_ratio_low or clip_ratio_high is null"),
        Key("clip_ratio_low", 0.2, ACTOR, otherwise="clip_ratio"),
        Key("clip_ratio_high", 0.2, ACTOR, otherwise="clip_ratio"),
        Key("clip_ratio_c", 3.0, ACTOR, note="dual clip; the cap of the ratio in dppo_tv"),
        Key("tau_pos", 1.0, ACTOR),
        Key("tau_neg", 1.05, ACTOR),
        Key("loss_agg_mode", "token-mean", ACTOR),
        Key("ppo_epochs", 1, ACTOR, note="updates per batch, mini-batches not counted"),
        Key("use_kl_loss", False, ACTOR),
        Key("kl_loss_coef", 0.001, ACTOR),
        Key("kl_loss_type", "low_var_kl", ACTOR),
        Key("entropy_coeff", 0.0, ACTOR),
        Key("adv_estimator", "grpo", "algorithm", note="its own default is gae, which needs a critic"),
        Key("norm_adv_by_std_in_grpo", True, "algorithm"),
        Key("rollout_is", None, CORRECTION),
        Key("rollout_is_threshold", 2.0, CORRECTION, text=True),
        Key("rollout_is_batch_normalize", False, CORRECTION),
        Key("rollout_rs", None, CORRECTION),
        Key("rollout_rs_threshold", None, CORRECTION, text=True),
        Key("bypass_mode", False, CORRECTION),
        Key("loss_type", "ppo_clip", CORRECTION, note="of bypass mode"),
    ),
    objectives=(
        Rule({**PLAIN, "rollout_is": ABSENT, "rollout_rs": ABSENT}, "dual_clip@verl", DUAL),
        Rule(
            {**WEIGHED, "rollout_is_threshold": NUMBER, "rollout_is_batch_normalize": False},
            "tis@verl",
            {**LEVEL, "cap": Their("rollout_is_threshold"), **DUAL},
        ),
        Rule(
            {**WEIGHED, "rollout_is_threshold": NUMBER, "rollout_is_batch_normalize": True},
            "tis@verl-normalized",
            {**LEVEL, "cap": Their("rollout_is_threshold"), **DUAL},
        ),
        Rule(
            {**WEIGHED, "rollout_is_threshold": RANGE, "rollout_is_batch_normalize": False},
            "mis",
            {
                **LEVEL,
                "low": Their("rollout_is_threshold", lower, "its lower half"),
                "high": Their("rollout_is_threshold", upper, "its upper half"),
                **DUAL,
            },
            note="dropped tokens stay in the denominator: a threshold with two bounds is IcePop, not "
            "rejection",
        ),
        Rule(
            {**PLAIN, "rollout_is": ABSENT, "rollout_rs": K1},
            "kl_rejection@verl",
            {
                "level": Their("rollout_rs", level_of, "token, sequence_sum or sequence_mean"),
                "low": Their("rollout_rs_threshold", low_of, "its lower half; 1/x of one number x"),
                "high": Their("rollout_rs_threshold", high_of, "its upper half"),
                **DUAL,
            },
            denominator="kept",
            note="the bounds are compared with k1 = -log d: the interval kept is d in [1/high, 1/low]",
        ),
        Rule(
            {**PLAIN, "rollout_is": ABSENT, "rollout_rs": K23},
            "kl_rejection",
            {
                "estimator": Their("rollout_rs", lambda option: option[-2:], "k2 or k3"),
                "level": Their("rollout_rs", level_of, "token, sequence_sum, sequence_mean or sequence_max"),
                "limit": Their("rollout_rs_threshold"),
                **DUAL,
            },
            denominator="kept",
        ),
        Rule(
            {**BYPASS, "loss_type": "ppo_clip", "rollout_is": ABSENT, "rollout_rs": ABSENT},
            "dual_clip@verl",
            DUAL,
            note="one clip holds staleness and engine mismatch together",
        ),
        Rule(
            {**BYPASS, "loss_type": "reinforce", "rollout_is": ("token", "sequence"), "rollout_rs": ABSENT},
            "importance_reinforce",
            {**LEVEL, "cap": Their("rollout_is_threshold")},
        ),
        Rule({**BYPASS, "loss_type": "reinforce", "rollout_is": ABSENT, "rollout_rs": ABSENT}, "reinforce"),
        Rule({"loss_mode": "gspo"}, "gspo@verl", CLIP, aggregation="constant", length=1.0),
        Rule(
            {"loss_mode": "sapo"},
            "sapo",
            {"tau_pos": Their("tau_pos"), "tau_neg": Their("tau_neg")},
            aggregation="sequence_mean",
        ),
        Rule({"loss_mode": "geo_mean"}, "gmpo@verl", CLIP, aggregation="constant", length=1.0),
        Rule({"loss_mode": "cispo"}, "cispo@verl", CLIP),
        Rule(
            {"loss_mode": "dppo_tv"},
            "dppo_tv@verl",
            {
                "d_low": Their("clip_ratio_low"),
                "d_high": Their("clip_ratio_high"),
                "cap": Their("clip_ratio_c"),
            },
        ),
        Rule({"loss_mode": "gpg"}, "reinforce"),
        Rule({"loss_mode": "dro"}, "dro@verl", note="beta is left at its default here"),
    ),
    aggregations=(
        Rule({"loss_agg_mode": "token-mean"}, "token_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-mean"}, "sequence_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-sum"}, "constant", length=1.0),
        Rule(
            {"loss_agg_mode": "seq-mean-token-sum-norm"},
            "constant",
            note="divided by the batch's width, as without loss_scale_factor",
        ),
    ),
    advantages=(
        Rule({"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": True}, "group_std"),
        Rule({"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}, "group_mean"),
        Rule({"adv_estimator": "rloo"}, "leave_one_out"),
        Rule({"adv_estimator": "opo"}, "opo"),
        Rule({"adv_estimator": "remax"}, "remax"),
        Rule({"adv_estimator": "grpo_passk"}, "max_at_k@verl"),
        Rule({"adv_estimator": "reinforce_plus_plus"}, "batch_std"),
        Rule({"adv_estimator": "reinforce_plus_plus_baseline"}, "batch_std", {"center": True}),
    ),
    anchors=(Rule({"bypass_mode": True}, "behavior"), Rule({"bypass_mode": False}, "recompute")),
    terms=(
        Rule(
            {"use_kl_loss": True, "kl_loss_type": ("low_var_kl", "k3")},
            "kl_penalty@verl",
            coefficient=Their("kl_loss_coef"),
        ),
        *(
            Rule(
                {"use_kl_loss": True, "kl_loss_type": names},
                "kl_penalty",
                {"estimator": estimator},
                coefficient=Their("kl_loss_coef"),
            )
            for names, estimator in ((("kl", "k1"), "k1"), (("mse", "k2"), "k2"), (("abs",), "abs"))
        ),
        Rule(
            {"use_kl_loss": True, "kl_loss_type": ("k1+", "kl+", "k3+", "low_var_kl+")},
            "kl_penalty",
            {"estimator": "k2"},
            coefficient=Their("kl_loss_coef"),
            note="a + takes the value of one estimator and the gradient of k2; only the gradient is the "
            "same here",
        ),
    ),
    refusals=(
        Refusal({"entropy_coeff": GIVEN}, "the entropy is that of all logits, which a batch does not hold."),
        Refusal(
            {"loss_mode": ("dppo_kl", "clip_cov", "kl_cov")},
            "there is no such objective here. dppo_tv has the same mask with another divergence.",
        ),
        Refusal(
            {"adv_estimator": ("gae", "gpg", "gdpo", "optimal_token_baseline")},
            "it needs a critic, several rewards or norms of scores.",
        ),
        Refusal(
            {"rollout_rs": "binary_kl"}, "it reads both probabilities of a token; no objective drops by it."
        ),
        *(
            Refusal(
                {"loss_mode": ("gspo", "sapo", "geo_mean", "cispo", "dppo_tv", "gpg", "dro"), name: GIVEN},
                "verl multiplies or masks any loss; here only vanilla has its correction inside. Take the "
                "loss without it, and testbed's correction_weights or kept_mask of tis@verl or kl_rejection "
                "beside it.",
            )
            for name in ("rollout_is", "rollout_rs")
        ),
        Refusal(
            {"rollout_is": GIVEN, "rollout_rs": GIVEN},
            "no objective weighs by one and rejects by the other; take either.",
        ),
    ),
    traps=(
        "`clip_ratio` alone changes nothing: `clip_ratio_low` and `clip_ratio_high` have defaults of their "
        "own, 0.2 each, and only a null of theirs falls back to it. So `loss_mode=gspo` starts from PPO's "
        "0.2, some 600 times wider than the paper's 3e-4 and 4e-4.",
        "`gspo@verl`, `gmpo@verl` are divided by T already, so that their aggregation here is `constant` "
        "with length 1: the same as verl's seq-mean-token-mean of the undivided loss. `loss_agg_mode` is "
        "ignored by gspo, sapo (always seq-mean-token-mean) and geo_mean.",
        "`rollout_is=sequence` is the product over tokens (level `sequence`), `rollout_rs=seq_mean_k1` the "
        "geometric mean: two meanings of sequence in one file. gspo's ratio is the geometric mean as well.",
        "Rejection (`rollout_rs`) edits the mask: dropped tokens leave the denominator (`denominator=kept`). "
        "A threshold with two bounds in `rollout_is_threshold` zeroes weights and leaves the mask alone.",
        "`rollout_rs_threshold=0.6_1.4` for k1 keeps d in [0.714, 1.667], not in [0.6, 1.4].",
        "With `rollout_is_batch_normalize` weights exceed the threshold: they are divided by their mean "
        "after truncation.",
        "geo_mean reads `clip_ratio_low` and `clip_ratio_high` as bounds of the logarithm, so that its 0.2 "
        "is half the paper's 0.4; it counts sequences without a token, the other modes leave them out.",
        "In `dppo_tv` the clip ratios are thresholds on a difference of probabilities, and `clip_ratio_c` "
        "caps the ratio at 3.",
    ),
    passes="ppo_epochs",
)
