"""Trinity-RFT: algorithm.policy_loss_fn and its arguments."""

from testbed.stacks import GIVEN, Key, Refusal, Rule, Stack, Their

ARGS = "algorithm.policy_loss_fn_args"
CLIP = {"eps_low": Their("clip_range_low"), "eps_high": Their("clip_range_high")}
REC = {"eps_low": Their("epsilon_low"), "eps_high": Their("epsilon_high")}
KL = ("k1", "k2", "k3", "abs")


def rec(mode: str, name: str, **more: object) -> tuple[Rule, ...]:
    """Return REC's rules for one way to drop tokens: without a weight, and with the importance ratio."""
    args = {**REC, **more}
    when = {"policy_loss_fn": "rec", "clip_mode": mode}
    return (
        Rule({**when, "weight": "none"}, name, {**args, "weight": "none"}),
        Rule({**when, "weight": "importance_sampling"}, name, {**args, "weight": "importance"}),
    )


FAR = {"far_low": Their("epsilon_low_prime"), "far_high": Their("epsilon_high_prime")}
GSPO_SIDE = {"policy_loss_fn": "rec", "clip_mode": "gspo-one-side"}

STACK = Stack(
    name="trinity",
    title="Trinity-RFT",
    source="yanxi-chen/Trinity-RFT 9051d637 2026-04-09 (fork), trinity/algorithm/policy_loss_fn, kl_fn",
    keys=(
        Key("policy_loss_fn", "ppo", "algorithm"),
        Key("clip_range", 0.2, ARGS),
        Key(
            "clip_range_low",
            None,
            ARGS,
            otherwise="clip_range",
            by=("policy_loss_fn", {"gspo": 3e-4, "cispo": 1.0}),
        ),
        Key(
            "clip_range_high",
            None,
            ARGS,
            otherwise="clip_range",
            by=("policy_loss_fn", {"gspo": 4e-4, "cispo": 0.28}),
        ),
        Key("clip_ratio_c", 3.0, ARGS),
        Key("enable_sequence_masking", False, ARGS),
        Key("delta", 0.1, ARGS),
        Key("enable_mask_clip", False, ARGS),
        Key("mask_clip_range_low", 1.0, ARGS),
        Key("mask_clip_range_high", 0.28, ARGS),
        Key("tau_pos", 1.0, ARGS),
        Key("tau_neg", 1.05, ARGS),
        Key("clip_mode", "none", ARGS),
        Key("weight", "none", ARGS),
        Key("epsilon_low", 0.2, ARGS),
        Key("epsilon_high", 0.2, ARGS),
        Key("epsilon_low_prime", 0.6, ARGS),
        Key("epsilon_high_prime", 2.0, ARGS),
        Key("temp", 1.0, ARGS),
        Key("regularizer_coef", 0.0, ARGS),
        Key("m2_threshold", 0.04, ARGS),
        Key("loss_agg_mode", "token-mean", ARGS),
        Key("kl_loss_fn", "none", "algorithm", note="k2 in its GRPO"),
        Key("kl_coef", 0.001, "algorithm.kl_loss_fn_args"),
        Key("advantage_fn", "grpo", "algorithm"),
        Key("std_threshold", None, "algorithm.advantage_fn_args"),
    ),
    objectives=(
        Rule(
            {"policy_loss_fn": "ppo", "enable_sequence_masking": False},
            "dual_clip@verl",
            {**CLIP, "c": Their("clip_ratio_c")},
        ),
        Rule(
            {"policy_loss_fn": "ppo", "enable_sequence_masking": True},
            "opsm",
            {**CLIP, "delta": Their("delta"), "c": Their("clip_ratio_c")},
            note="its drift is against old_logprob, here against mu",
        ),
        Rule({"policy_loss_fn": "gspo"}, "gspo_token", CLIP, aggregation="constant", length=1.0),
        Rule({"policy_loss_fn": "cispo", "enable_mask_clip": False}, "cispo", CLIP),
        Rule(
            {"policy_loss_fn": "cispo", "enable_mask_clip": True},
            "cispo@trinity-mask",
            {**CLIP, "mask_low": Their("mask_clip_range_low"), "mask_high": Their("mask_clip_range_high")},
        ),
        Rule(
            {"policy_loss_fn": "sapo"},
            "sapo@trinity",
            {"tau_pos": Their("tau_pos"), "tau_neg": Their("tau_neg")},
        ),
        Rule({"policy_loss_fn": "topr"}, "topr@trinity"),
        Rule({"policy_loss_fn": "m2po"}, "m2po@trinity", {"tau": Their("m2_threshold")}),
        *rec("one-side", "rec_oneside", level="token"),
        *rec("two-side", "rec_twoside"),
        *rec("ring", "rec_ring", **FAR),
        Rule(
            {**GSPO_SIDE, "weight": "none"},
            "rec_oneside",
            {**REC, "level": "geometric", "weight": "none"},
            aggregation="sequence_mean",
        ),
        Rule(
            {**GSPO_SIDE, "weight": "gspo_importance_sampling"},
            "rec_oneside",
            {**REC, "level": "geometric", "weight": "importance"},
            aggregation="sequence_mean",
        ),
        Rule({"policy_loss_fn": "rec", "clip_mode": "none", "weight": "none"}, "reinforce"),
        Rule(
            {"policy_loss_fn": "rec", "clip_mode": "none", "weight": "importance_sampling"},
            "importance_reinforce",
            {"level": "token"},
        ),
        Rule(
            {"policy_loss_fn": "rec", "clip_mode": "none", "weight": "advantage"},
            "red_weight",
            {"temp": Their("temp")},
        ),
    ),
    aggregations=(
        Rule({"policy_loss_fn": "rec"}, "token_mean"),
        Rule({"loss_agg_mode": "token-mean"}, "token_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-mean"}, "sequence_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-sum"}, "constant", length=1.0),
        Rule(
            {"loss_agg_mode": "seq-mean-token-sum-norm"},
            "sum_over_length",
            note="not divided by the number of sequences",
        ),
    ),
    advantages=(
        Rule({"advantage_fn": "grpo"}, "group_std"),
        Rule({"advantage_fn": "rec"}, "group_mean"),
        Rule({"advantage_fn": "rloo"}, "leave_one_out"),
        Rule({"advantage_fn": "asymre"}, "asymre@trinity"),
        Rule({"advantage_fn": "remax"}, "remax"),
        Rule({"advantage_fn": "reinforceplusplus"}, "batch_std"),
    ),
    anchors=(Rule({}, "behavior", note="old_logprob is taken to be the sampler's, which was not verified"),),
    terms=(
        *(
            Rule({"kl_loss_fn": kind}, "kl_penalty", {"estimator": kind}, coefficient=Their("kl_coef"))
            for kind in KL
        ),
        Rule({"kl_loss_fn": "low_var_kl"}, "kl_penalty@verl", coefficient=Their("kl_coef")),
        Rule({"kl_loss_fn": "corrected_k3"}, "unbiased_kl@trinity", coefficient=Their("kl_coef")),
    ),
    refusals=(
        Refusal({"advantage_fn": "ppo"}, "it needs a critic."),
        Refusal(
            {"policy_loss_fn": ("dpo", "sft", "mix", "mix_chord", "opmd")},
            "it needs other data than a rollout.",
        ),
        Refusal(
            {"regularizer_coef": GIVEN},
            "REC's regularizers are objectives of their own here: dro@tinker, asymre.",
        ),
        Refusal(
            {"std_threshold": GIVEN}, "it leaves groups out, which a recipe does by dynamic_sampling (dapo)."
        ),
    ),
    traps=(
        "`sapo@trinity` is another algorithm: the gate is the weight, where the paper's weight is its "
        "derivative.",
        "`gspo_token` is divided by T already: `constant` with length 1. Trinity-RFT forces "
        "seq-mean-token-mean.",
        "seq-mean-token-sum-norm is not divided by the number of sequences (`sum_over_length`), unlike "
        "verl's mode of that name.",
        "cispo's mask has a window of its own (mask_clip_range_*), and dropped tokens stay in the "
        "denominator, as do those of enable_sequence_masking and m2po.",
        "The same key has another default in every loss: `clip_range_low` is 0.2 in ppo, 3e-4 in gspo, 1 in "
        "cispo.",
        "REC's epsilon_low_prime and epsilon_high_prime are 0.6 and 2 in its registered defaults, 0.4 in its "
        "constructor.",
    ),
)
