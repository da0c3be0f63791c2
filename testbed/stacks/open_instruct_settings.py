"""open-instruct: flags of grpo_fast.py."""

import math

from testbed.stacks import ABSENT, GIVEN, NUMBER, Key, Refusal, Rule, Stack, Their

CLIP = {"eps_low": Their("clip_lower"), "eps_high": Their("clip_higher")}
CAP = "truncated_importance_sampling_ratio_cap"
DELTA = Their("dppo_divergence_threshold")

STACK = Stack(
    name="open-instruct",
    title="open-instruct",
    source="allenai/open-instruct e6c3044a 2026-08-20, open_instruct/grpo_utils.py, grpo_fast.py",
    keys=(
        Key("loss_fn", "dapo"),
        Key("clip_lower", 0.2),
        Key("clip_higher", 0.272),
        Key(CAP, 2.0, note="0 switches it off"),
        Key("tis_mask_lower", 0.0),
        Key("tis_mask_upper", 0.0),
        Key("use_vllm_logprobs", False),
        Key("dppo_divergence_type", "tv"),
        Key("dppo_divergence_threshold", 0.1),
        Key("loss_denominator", "token", note="a number divides the sum over all tokens"),
        Key("advantage_normalization_type", "standard"),
        Key("beta", 0.05),
        Key("kl_estimator", "2", note="0: k1, 1: k2, 2: k3, 3: k1 weighed by the ratio"),
    ),
    objectives=(
        Rule({"loss_fn": "dapo", CAP: GIVEN}, "tis@open-instruct", {"cap": Their(CAP), **CLIP}),
        Rule({"loss_fn": "dapo", CAP: ABSENT}, "ppo_clip", CLIP),
        Rule({"loss_fn": "cispo", CAP: ABSENT}, "cispo@open-instruct", {"eps_high": Their("clip_higher")}),
        Rule(
            {"loss_fn": "dppo", "dppo_divergence_type": "tv", CAP: ABSENT, "use_vllm_logprobs": True},
            "dppo_tv",
            {"d_low": DELTA, "d_high": DELTA, "cap": math.inf},
        ),
    ),
    aggregations=(
        Rule({"loss_denominator": NUMBER}, "sum_over_length", length=Their("loss_denominator")),
        Rule({"loss_denominator": "token"}, "token_mean"),
    ),
    advantages=(
        Rule({"advantage_normalization_type": "standard"}, "group_std"),
        Rule({"advantage_normalization_type": "centered"}, "group_mean"),
    ),
    anchors=(
        Rule({"use_vllm_logprobs": True, CAP: ABSENT}, "behavior"),
        Rule({"use_vllm_logprobs": False}, "recompute"),
    ),
    terms=tuple(
        Rule(
            {"beta": GIVEN, "kl_estimator": str(index)},
            "kl_penalty",
            {"estimator": name},
            coefficient=Their("beta"),
        )
        for index, name in enumerate(("k1", "k2", "k3"))
    ),
    refusals=(
        *(
            Refusal({name: GIVEN}, "no objective here adds a mask on pi/mu to a clipped loss.")
            for name in ("tis_mask_lower", "tis_mask_upper")
        ),
        Refusal(
            {"use_vllm_logprobs": True, CAP: GIVEN},
            f"open-instruct itself refuses them together; set {CAP}=0.",
        ),
        Refusal(
            {"loss_fn": "cispo", CAP: GIVEN},
            "open-instruct multiplies this loss by the sampler's weights; here only the clipped loss has "
            "them "
            f"inside. Set {CAP}=0, and take testbed's correction_weights of tis@open-instruct beside it.",
        ),
        Refusal(
            {"loss_fn": "tvpo"}, "its mask is by the prompt's total variation; no objective here has it."
        ),
        Refusal(
            {"loss_fn": "dppo", "use_vllm_logprobs": False},
            "open-instruct itself asks for use_vllm_logprobs=true.",
        ),
        Refusal(
            {"loss_fn": "dppo", "dppo_divergence_type": "kl"}, "there is no such objective here; tv there is."
        ),
        Refusal(
            {"beta": GIVEN, "kl_estimator": "3"},
            "no term here is k1 weighed by pi/anchor; set another, or beta=0.",
        ),
    ),
    traps=(
        "The upper clip is 0.272, not 0.2 and not DAPO's 0.28; for cispo it is the bound 1.272, and no lower "
        "bound.",
        "The sampler's correction is on by default (cap 2). `cispo` there multiplies both weights.",
        "`beta` is 0.05 by default: a KL term with k3. It is aggregated with the loss.",
        "`loss_denominator` as a number divides the sum of all tokens, not the number of sequences too "
        "(`sum_over_length`): the gradient grows with the batch.",
        "Masked tokens (tis_mask_*, dppo) stay in the denominator.",
    ),
)
