"""slime: flags of its command line."""

from testbed.stacks import ABSENT, GIVEN, NUMBER, Is, Key, Refusal, Rule, Stack, Their

CLIP = {"eps_low": Their("eps_clip"), "eps_high": Their("eps_clip_high")}
DUAL = {**CLIP, "c": Their("eps_clip_c")}
GROUPED = ("grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
PLAIN = {"advantage_estimator": GROUPED, "use_opsm": False}
ZERO = Is("0", lambda value: value == 0)

STACK = Stack(
    name="slime",
    title="slime",
    source="THUDM/slime 624b824a 2026-08-21, slime/utils/arguments.py, slime/utils/ppo_utils.py, "
    "slime/backends/megatron_utils/loss.py",
    keys=(
        Key("advantage_estimator", "grpo", note="chooses the loss as well: gspo, cispo"),
        Key("eps_clip", 0.2),
        Key("eps_clip_high", None, otherwise="eps_clip"),
        Key("eps_clip_c", None),
        Key("use_tis", False),
        Key("tis_clip", 2.0),
        Key("tis_clip_low", 0.0),
        Key("use_opsm", False),
        Key("opsm_delta", 1e-4),
        Key("use_rollout_logprobs", False),
        Key("calculate_per_token_loss", False),
        Key("disable_grpo_std_normalization", False),
        Key("use_kl_loss", False),
        Key("kl_loss_coef", 0.0),
        Key("kl_loss_type", "k1"),
        Key("use_unbiased_kl", False),
        Key("entropy_coef", 0.0),
    ),
    objectives=(
        Rule({**PLAIN, "use_tis": False, "eps_clip_c": ABSENT}, "ppo_clip", CLIP),
        Rule({**PLAIN, "use_tis": False, "eps_clip_c": NUMBER}, "dual_clip", DUAL),
        Rule(
            {**PLAIN, "use_tis": True, "tis_clip_low": ZERO, "eps_clip_c": ABSENT},
            "tis",
            {"cap": Their("tis_clip"), **CLIP},
        ),
        Rule(
            {**PLAIN, "use_tis": True, "tis_clip_low": ZERO, "eps_clip_c": NUMBER},
            "tis@verl",
            {"cap": Their("tis_clip"), **DUAL},
        ),
        Rule(
            {**PLAIN, "use_tis": True, "tis_clip_low": GIVEN, "eps_clip_c": ABSENT},
            "tis@openrlhf",
            {"low": Their("tis_clip_low"), "high": Their("tis_clip"), **CLIP},
        ),
        Rule(
            {"advantage_estimator": GROUPED, "use_opsm": True, "use_tis": False, "eps_clip_c": ABSENT},
            "opsm",
            {**CLIP, "delta": Their("opsm_delta")},
        ),
        Rule(
            {"advantage_estimator": "gspo", "use_tis": False, "use_opsm": False, "eps_clip_c": ABSENT},
            "luspo",
            CLIP,
            note="gspo's loss at every token, not divided by T",
        ),
        Rule({"advantage_estimator": "cispo", "use_tis": False, "use_opsm": False}, "cispo@slime", CLIP),
    ),
    aggregations=(
        Rule(
            {"calculate_per_token_loss": False},
            "sequence_sum",
            note="means over tokens, summed over sequences",
        ),
        Rule({"calculate_per_token_loss": True}, "token_mean"),
    ),
    advantages=(
        Rule(
            {
                "advantage_estimator": ("grpo", "gspo", "cispo"),
                "disable_grpo_std_normalization": False,
            },
            "group_std",
        ),
        Rule(
            {
                "advantage_estimator": ("grpo", "gspo", "cispo"),
                "disable_grpo_std_normalization": True,
            },
            "group_mean",
        ),
        Rule({"advantage_estimator": "reinforce_plus_plus"}, "batch_std"),
        Rule({"advantage_estimator": "reinforce_plus_plus_baseline"}, "batch_std", {"center": True}),
    ),
    anchors=(
        Rule({"use_rollout_logprobs": True}, "behavior"),
        Rule({"use_rollout_logprobs": False}, "recompute"),
    ),
    terms=(
        *(
            Rule(
                {"use_kl_loss": True, "kl_loss_coef": GIVEN, "kl_loss_type": kind, "use_unbiased_kl": False},
                "kl_penalty",
                {"estimator": kind},
                coefficient=Their("kl_loss_coef"),
            )
            for kind in ("k1", "k2", "k3")
        ),
        Rule(
            {
                "use_kl_loss": True,
                "kl_loss_coef": GIVEN,
                "kl_loss_type": "low_var_kl",
                "use_unbiased_kl": False,
            },
            "kl_penalty@verl",
            coefficient=Their("kl_loss_coef"),
        ),
    ),
    refusals=(
        Refusal({"advantage_estimator": "ppo"}, "it needs a critic."),
        Refusal({"entropy_coef": GIVEN}, "the entropy is that of all logits, which a batch does not hold."),
        Refusal(
            {"use_kl_loss": True, "use_unbiased_kl": True},
            "its importance weight was not read; unbiased_kl and kl_penalty@trl are two such terms.",
        ),
        Refusal(
            {"advantage_estimator": ("gspo", "cispo"), "use_tis": True},
            "slime multiplies this loss by the sampler's weights; here only the clipped loss has them "
            "inside. Take it without, and testbed's correction_weights of tis beside it.",
        ),
    ),
    traps=(
        "Sequence means are summed, not averaged (`sequence_sum`): the gradient grows with the batch, and a "
        "learning rate means something else for every batch size. `calculate_per_token_loss` is a token "
        "mean.",
        "`advantage_estimator` chooses the loss as well. gspo there is a geometric mean, not divided by T "
        "(`luspo` here), so that the mean over its tokens is GSPO's sequence loss; with "
        "calculate_per_token_loss a sequence counts by its length.",
        "`--use-kl-loss` with kl_loss_type k1, the default, has a term whose expected gradient is zero.",
        "CISPO has no window of its own: eps_clip and eps_clip_high bound its weight on both sides.",
        "The helper examples/train_infer_mismatch_helper (a custom TIS function) takes dropped sequences out "
        "of the mask: `tis@slime` with denominator kept. Plain --use-tis drops nothing.",
    ),
)
