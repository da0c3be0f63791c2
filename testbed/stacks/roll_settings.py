"""ROLL: the RLVR actor and the policy-gradient variants of its agentic one."""

import math

from testbed.stacks import GIVEN, Key, Refusal, Rule, Stack, Their

SYMMETRIC = {"eps_low": Their("pg_clip"), "eps_high": Their("pg_clip")}
RANGE = {"eps_low": Their("pg_clip_low"), "eps_high": Their("pg_clip_high")}
DUAL = {"c": Their("pg_clip", lambda clip: 1 + 2 * clip, "1 + 2 pg_clip")}
PLAIN = {
    "use_rollout_importance_sampling_ratio": False,
    "train_infer_ratio_mask": False,
    "train_infer_ratio_seq_mask": False,
}
PPO = {"pg_variant": "ppo", "importance_sampling": "token"}
WEIGHTED = {**PPO, **PLAIN, "use_rollout_importance_sampling_ratio": True}
CAP = {"cap": Their("rollout_importance_sampling_ratio_upper_bound")}
RATIO, SEQUENCE = "train_infer_ratio_threshold", "train_infer_ratio_seq_threshold"


def inverse(bound: float) -> float:
    """Return 1/bound."""
    return 1 / bound


def clipped() -> tuple[Rule, ...]:
    """Return the clipped loss with each clip, without and with its second bound and weight."""
    rules = []
    for asymmetric, clip in ((False, SYMMETRIC), (True, RANGE)):
        switch = {"use_pg_clip_range": asymmetric}
        rules += [
            Rule({**PPO, **PLAIN, **switch, "dual_clip_loss": False}, "ppo_clip", clip),
            Rule({**PPO, **PLAIN, **switch, "dual_clip_loss": True}, "dual_clip", {**clip, **DUAL}),
            Rule({**WEIGHTED, **switch, "dual_clip_loss": False}, "tis", {**CAP, **clip}),
            Rule({**WEIGHTED, **switch, "dual_clip_loss": True}, "tis@verl", {**CAP, **clip, **DUAL}),
            Rule(
                {**PPO, **PLAIN, "train_infer_ratio_mask": True, **switch, "dual_clip_loss": False},
                "kl_rejection@verl",
                {
                    "level": "token",
                    "low": Their(f"{RATIO}_high", inverse, "1 over it"),
                    "high": Their(f"{RATIO}_low", inverse, "1 over it"),
                    **clip,
                    "c": math.inf,
                },
                denominator="kept",
            ),
            Rule(
                {**PPO, **PLAIN, "train_infer_ratio_seq_mask": True, **switch, "dual_clip_loss": False},
                "geometric_rejection",
                {"low": Their(f"{SEQUENCE}_low"), "high": Their(f"{SEQUENCE}_high"), **clip},
                denominator="kept",
            ),
            Rule(
                {
                    "pg_variant": "ppo",
                    "importance_sampling": "seq",
                    **PLAIN,
                    **switch,
                    "dual_clip_loss": False,
                },
                "luspo",
                clip,
                note="gspo's loss at every token, not divided by T",
            ),
        ]
    return tuple(rules)


STACK = Stack(
    name="roll",
    title="ROLL",
    source="alibaba/ROLL 8eb27cc2 2026-08-18, roll/pipeline/rlvr/actor_worker.py, "
    "roll/configs/worker_config.py, docs_roll (offpolicy_setting)",
    keys=(
        Key("pg_variant", "ppo", note="of the off-policy workers; the RLVR actor has ppo alone"),
        Key("importance_sampling", "token"),
        Key("pg_clip", 0.2),
        Key("use_pg_clip_range", False),
        Key("pg_clip_low", 0.2),
        Key("pg_clip_high", 0.2),
        Key("dual_clip_loss", False),
        Key("tis_lower_bound", 0.0),
        Key("tis_upper_bound", 1.0),
        Key("topr_positive_weight", 1.0),
        Key("topr_negative_weight", 1.0),
        Key("cispo_epsilon_low", 0.1),
        Key("cispo_epsilon_high", 0.1),
        Key("cispo_use_unified_mask", False),
        Key("kimi15_tau", 0.1),
        Key("use_rollout_importance_sampling_ratio", False),
        Key("rollout_importance_sampling_ratio_upper_bound", None),
        Key("train_infer_ratio_mask", False),
        Key(f"{RATIO}_low", None),
        Key(f"{RATIO}_high", None),
        Key("train_infer_ratio_seq_mask", False),
        Key(f"{SEQUENCE}_low", None),
        Key(f"{SEQUENCE}_high", None),
        Key("train_infer_diff_mask", False),
        Key("loss_agg_mode", "seq-mean-token-sum"),
        Key("adv_estimator", "grpo", note="its own default is gae, which needs a critic"),
        Key("use_kl_loss", False),
        Key("kl_loss_coef", 0.0),
        Key("entropy_loss_coef", 0.0),
        Key("ppo_epochs", 1),
    ),
    objectives=(
        *clipped(),
        Rule({"pg_variant": "vanilla"}, "reinforce"),
        Rule(
            {"pg_variant": "tis"},
            "tis@roll",
            {"low": Their("tis_lower_bound"), "high": Their("tis_upper_bound")},
            note="not the correction of that name: it truncates pi/anchor and never reads mu",
        ),
        Rule(
            {"pg_variant": "topr"},
            "topr@roll",
            {
                "positive_weight": Their("topr_positive_weight"),
                "negative_weight": Their("topr_negative_weight"),
            },
        ),
        Rule(
            {"pg_variant": "cispo", "cispo_use_unified_mask": False},
            "cispo@roll",
            {"eps_low": Their("cispo_epsilon_low"), "eps_high": Their("cispo_epsilon_high")},
        ),
        Rule({"pg_variant": "kimi15"}, "kimi_opmd@roll", {"tau": Their("kimi15_tau")}),
    ),
    aggregations=(
        Rule({"loss_agg_mode": "token-mean"}, "token_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-sum"}, "constant", length=1.0),
        Rule({"loss_agg_mode": "seq-mean-token-mean"}, "sequence_mean"),
        Rule({"loss_agg_mode": "seq-mean-token-sum-norm"}, "constant"),
    ),
    advantages=(
        Rule({"adv_estimator": "grpo"}, "group_std"),
        Rule({"adv_estimator": "reinforce"}, "batch_std", note="REINFORCE++'s form is assumed"),
    ),
    anchors=(Rule({}, "recompute"),),
    terms=(Rule({"use_kl_loss": True}, "kl_penalty@verl", coefficient=Their("kl_loss_coef")),),
    refusals=(
        Refusal(
            {"entropy_loss_coef": GIVEN}, "the entropy is that of all logits, which a batch does not hold."
        ),
        Refusal({"train_infer_diff_mask": True}, "no objective here masks by a difference of anchor and mu."),
        Refusal({"adv_estimator": "gae"}, "it needs a critic."),
        Refusal(
            {"pg_variant": "cispo", "cispo_use_unified_mask": True},
            "cispo@trinity-mask has that mask, but around mu instead of the anchor.",
        ),
    ),
    traps=(
        "`pg_variant=tis` is not truncated importance sampling of the engine mismatch: it clamps pi/anchor "
        "to [0, 1]. What others call TIS is use_rollout_importance_sampling_ratio.",
        "The second bound of `dual_clip_loss` is 1 + 2 pg_clip, 1.4 by default, and follows `pg_clip` even "
        "where use_pg_clip_range has replaced it.",
        "`importance_sampling=seq` is the geometric mean, not divided by T: `luspo` here, gspo's loss at "
        "every token. With the default seq-mean-token-sum a sequence counts by its length; with "
        "seq-mean-token-mean it is GSPO. Its mask of the same name (train_infer_ratio_seq_mask) is a "
        "geometric mean too.",
        "The masks train_infer_* leave the denominator, except in token-mean, which ignores the mask.",
        "`loss_agg_mode` starts from seq-mean-token-sum: the step grows with the length of the answers.",
    ),
    passes="ppo_epochs",
)
