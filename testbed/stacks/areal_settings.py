"""AReaL: actor of a GRPO or PPO configuration (PPOActorConfig)."""

import math

from testbed.stacks import ABSENT, GIVEN, NUMBER, Key, Refusal, Rule, Stack, Their

REJECTION = "rejection_sampling"
CLIP = {"eps_low": Their("eps_clip"), "eps_high": Their("eps_clip_higher")}
DUAL = {**CLIP, "c": Their("c_clip", absent=math.inf)}
COUPLED = {"use_sapo_loss": False, "m2_threshold": ABSENT, "use_decoupled_loss": False}
DECOUPLED = {"use_sapo_loss": False, "m2_threshold": ABSENT, "use_decoupled_loss": True}
TOKEN, SEQUENCE = {"importance_sampling_level": "token"}, {"importance_sampling_level": "sequence"}
UPPER, LOWER = Their(f"{REJECTION}.upper"), Their(f"{REJECTION}.lower", absent=0.0)
LEVEL = {
    "level": Their(
        f"{REJECTION}.level",
        {"token": "token", "sequence": "geometric"}.__getitem__,
        "token; geometric for sequence",
    )
}


WEIGHTED = {
    **DECOUPLED,
    **TOKEN,
    REJECTION: True,
    f"{REJECTION}.metric": "ratio",
    f"{REJECTION}.agg": "mean",
}
WHOLE = "dropped tokens stay in the denominator"

STACK = Stack(
    name="areal",
    title="AReaL",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/api/cli_args.py (PPOActorConfig, "
    "RejectionSamplingConfig), areal/utils/functional, areal/trainer/ppo/actor.py",
    keys=(
        Key("eps_clip", 0.2, "actor"),
        Key("eps_clip_higher", None, "actor", otherwise="eps_clip"),
        Key("c_clip", None, "actor"),
        Key("importance_sampling_level", "token", "actor"),
        Key("use_sapo_loss", False, "actor"),
        Key("sapo_tau_pos", 1.0, "actor"),
        Key("sapo_tau_neg", 1.05, "actor"),
        Key("m2_threshold", None, "actor"),
        Key("recompute_logprob", False, "actor"),
        Key("use_decoupled_loss", False, "actor"),
        Key("prox_logp_method", "recompute", "actor"),
        Key(
            REJECTION, False, "actor", note="null there by default; naming one of its settings switches it on"
        ),
        Key(f"{REJECTION}.level", "token", "actor", choices=("token", "sequence")),
        Key(f"{REJECTION}.action", "mask", "actor"),
        Key(f"{REJECTION}.metric", "ratio", "actor"),
        Key(f"{REJECTION}.agg", "mean", "actor"),
        Key(f"{REJECTION}.upper", 5.0, "actor"),
        Key(f"{REJECTION}.lower", None, "actor"),
        Key("kl_ctl", 0.0, "actor", note="0.1 there, inside the reward"),
    ),
    objectives=(
        Rule(
            {"use_sapo_loss": True, "use_decoupled_loss": False, **TOKEN},
            "sapo",
            {"tau_pos": Their("sapo_tau_pos"), "tau_neg": Their("sapo_tau_neg")},
        ),
        Rule(
            {"use_sapo_loss": True, "use_decoupled_loss": False, **SEQUENCE},
            "sapo@areal-sequence",
            {"tau_pos": Their("sapo_tau_pos"), "tau_neg": Their("sapo_tau_neg")},
        ),
        Rule(
            {
                "use_sapo_loss": False,
                "m2_threshold": NUMBER,
                "use_decoupled_loss": True,
                REJECTION: True,
                **TOKEN,
            },
            "m2po@areal",
            {"tau": Their("m2_threshold"), "cap": UPPER, "eps": Their("eps_clip")},
            denominator="kept",
            note="tokens that the second moment drops leave the denominator, those above the cap stay; "
            "here both leave",
        ),
        Rule({**COUPLED, **TOKEN, "c_clip": ABSENT}, "ppo_clip", CLIP),
        Rule({**COUPLED, **TOKEN, "c_clip": NUMBER}, "dual_clip", DUAL),
        Rule({**COUPLED, **SEQUENCE, "c_clip": ABSENT}, "gspo@areal", CLIP),
        Rule(
            {**DECOUPLED, **TOKEN, REJECTION: False, "c_clip": ABSENT},
            "ppo_clip",
            CLIP,
            note="without rejection_sampling the decoupled loss has no weight anchor/mu",
        ),
        Rule({**DECOUPLED, **TOKEN, REJECTION: False, "c_clip": NUMBER}, "dual_clip", DUAL),
        Rule({**DECOUPLED, **SEQUENCE, REJECTION: False, "c_clip": ABSENT}, "gspo@areal", CLIP),
        Rule(
            {**WEIGHTED, f"{REJECTION}.action": "mask", f"{REJECTION}.lower": ABSENT},
            "decoupled_ppo@areal",
            {**LEVEL, "cap": UPPER, **DUAL},
            note=WHOLE,
        ),
        Rule(
            {**WEIGHTED, f"{REJECTION}.action": "mask", f"{REJECTION}.lower": NUMBER},
            "mis",
            {**LEVEL, "low": LOWER, "high": UPPER, **DUAL},
            note=WHOLE,
        ),
        Rule(
            {**WEIGHTED, f"{REJECTION}.action": "clamp"},
            "tis@areal",
            {**LEVEL, "low": LOWER, "high": UPPER, **DUAL},
        ),
    ),
    aggregations=(Rule({}, "token_mean"),),
    advantages=(
        Rule(
            {},
            "batch_std@areal",
            note="advantages as in its GRPO example: reward_norm by group, adv_norm by batch",
        ),
    ),
    anchors=(
        Rule({"use_decoupled_loss": True, "prox_logp_method": ("recompute", "metrics")}, "recompute"),
        Rule({"use_decoupled_loss": True, "prox_logp_method": "loglinear"}, "loglinear"),
        Rule({"use_decoupled_loss": False, "recompute_logprob": True}, "recompute"),
        Rule({"use_decoupled_loss": False, "recompute_logprob": False}, "behavior"),
    ),
    refusals=(
        Refusal(
            {"kl_ctl": GIVEN}, "its KL is part of the reward, before the advantage; no task here adds it."
        ),
        Refusal(
            {"use_sapo_loss": True, "use_decoupled_loss": True}, "AReaL itself refuses the two together."
        ),
        Refusal({"use_sapo_loss": False, **SEQUENCE, "c_clip": GIVEN}, "gspo here has no dual clip."),
        Refusal(
            {"use_sapo_loss": False, "use_decoupled_loss": True, **SEQUENCE, REJECTION: True},
            "no objective here has GSPO's ratio and a weight anchor/mu.",
        ),
        Refusal(
            {"use_decoupled_loss": True, REJECTION: True, f"{REJECTION}.metric": ("kl_k1", "kl_k2", "kl_k3")},
            "AReaL drops by the divergence and still weighs by the ratio; kl_rejection here has no weight.",
        ),
        Refusal(
            {"use_decoupled_loss": True, REJECTION: True, f"{REJECTION}.agg": ("sum", "max")},
            "the weight would be the geometric mean and the mask another statistic; no objective here splits "
            "them.",
        ),
        Refusal(
            {"m2_threshold": GIVEN, "use_decoupled_loss": False}, "M2PO there masks anchor/mu: decouple it."
        ),
    ),
    traps=(
        "`sequence` is always the geometric mean, level `geometric` here: for the ratio "
        "(importance_sampling_level) and for the weight (rejection_sampling.level). The product over tokens "
        "does not exist there.",
        "`gspo@areal` and `sapo@areal-sequence` are not divided by T: with its mean over tokens a sequence "
        "counts by its length.",
        "Masked tokens (rejection_sampling.action=mask) stay in the denominator; those of M2PO leave it.",
        "`use_decoupled_loss` without `rejection_sampling` has no importance weight at all: PPO around a "
        "recomputed anchor. The older behave_imp_weight_cap was 5 by default.",
        "`prox_logp_method=loglinear` is the anchor of that name (`anchor=loglinear`); for a token as young "
        "as the weights its code takes mu. Its comparison with the mixture of probabilities is anchor "
        "`linear` here.",
        "The recipe that AReaL calls GRPO is not group-relative: advantages are standardized again over the "
        "tokens of the batch.",
    ),
)
