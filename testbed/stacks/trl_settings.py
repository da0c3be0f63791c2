"""TRL: fields of GRPOConfig."""

from testbed.stacks import ABSENT, GIVEN, NUMBER, Is, Key, Refusal, Rule, Stack, Their, is_number

CLIP = {"eps_low": Their("epsilon"), "eps_high": Their("epsilon_high")}
SURROGATES = ("grpo", "dapo", "bnpo", "dr_grpo")
TOKEN = {"loss_type": SURROGATES, "importance_sampling_level": "token"}
ALONE = {"use_vllm": False}
CORRECTED = {**TOKEN, "delta": ABSENT, "off_policy_mask_threshold": ABSENT}
CORRECTED |= {"use_vllm": True, "vllm_importance_sampling_correction": True}
MODE = "vllm_importance_sampling_mode"
LOW, HIGH = "vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max"


def before(mode: str) -> str:
    """Return sequence of "sequence_mask"."""
    return mode.partition("_")[0]


BELOW_ONE = Is("below 1", lambda value: is_number(value) and value < 1)
LEVEL = {"level": Their(MODE, before, "token or sequence")}
SAPO = {"tau_pos": Their("sapo_temperature_pos"), "tau_neg": Their("sapo_temperature_neg")}
VESPO = {
    name: Their(f"vespo_{theirs}")
    for name, theirs in (
        ("k_pos", "k_pos"),
        ("lam_pos", "lambda_pos"),
        ("k_neg", "k_neg"),
        ("lam_neg", "lambda_neg"),
    )
}

STACK = Stack(
    name="trl",
    title="TRL",
    source="huggingface/trl 1.16.0, trl/trainer/grpo_config.py, grpo_trainer.py",
    keys=(
        Key("loss_type", "dapo"),
        Key("importance_sampling_level", "token"),
        Key("epsilon", 0.2),
        Key(
            "epsilon_high",
            None,
            otherwise="epsilon",
            note="for cispo the bound itself, not its distance from 1",
        ),
        Key("delta", None),
        Key("off_policy_mask_threshold", None),
        Key("sapo_temperature_pos", 1.0),
        Key("sapo_temperature_neg", 1.05),
        Key("vespo_k_pos", 2.0),
        Key("vespo_lambda_pos", 3.0),
        Key("vespo_k_neg", 3.0),
        Key("vespo_lambda_neg", 2.0),
        Key("max_completion_length", None, note="512 there; 0 here: the width of the batch"),
        Key("num_iterations", 1),
        Key("scale_rewards", "group"),
        Key("beta", 0.0),
        Key("use_bias_correction_kl", True),
        Key("top_entropy_quantile", 1.0),
        Key("use_vllm", False),
        Key("vllm_importance_sampling_correction", True),
        Key(MODE, "sequence_mask"),
        Key(LOW, None),
        Key(HIGH, 3.0),
    ),
    objectives=(
        Rule(
            {**TOKEN, "delta": ABSENT, "off_policy_mask_threshold": ABSENT, **ALONE},
            "ppo_clip",
            CLIP,
        ),
        Rule(
            {
                **TOKEN,
                "delta": ABSENT,
                "off_policy_mask_threshold": ABSENT,
                "vllm_importance_sampling_correction": False,
            },
            "ppo_clip",
            CLIP,
        ),
        Rule(
            {**TOKEN, "delta": NUMBER, "off_policy_mask_threshold": ABSENT, **ALONE},
            "two_sided",
            {**CLIP, "delta": Their("delta")},
        ),
        Rule(
            {**TOKEN, "delta": ABSENT, "off_policy_mask_threshold": NUMBER, **ALONE},
            "opsm",
            {**CLIP, "delta": Their("off_policy_mask_threshold")},
        ),
        Rule(
            {**CORRECTED, MODE: ("token_truncate", "sequence_truncate"), LOW: ABSENT},
            "tis",
            {**LEVEL, "cap": Their(HIGH), **CLIP},
        ),
        Rule(
            {**CORRECTED, MODE: "token_truncate", LOW: NUMBER},
            "tis@openrlhf",
            {"low": Their(LOW), "high": Their(HIGH), **CLIP},
        ),
        Rule(
            {**CORRECTED, MODE: ("token_mask", "sequence_mask"), LOW: ABSENT},
            "mis",
            {**LEVEL, "low": 0.0, "high": Their(HIGH), **CLIP},
        ),
        Rule(
            {**CORRECTED, MODE: ("token_mask", "sequence_mask"), LOW: NUMBER},
            "mis",
            {**LEVEL, "low": Their(LOW), "high": Their(HIGH), **CLIP},
        ),
        Rule(
            {"loss_type": "grpo", "importance_sampling_level": "sequence"},
            "gspo",
            CLIP,
            aggregation="constant",
            length=1.0,
        ),
        Rule(
            {"loss_type": ("dapo", "bnpo"), "importance_sampling_level": "sequence"},
            "gspo",
            CLIP,
            aggregation="length_weighted",
            note="TRL repeats the sequence's loss at every token: over all tokens a sequence counts by "
            "its length",
        ),
        Rule(
            {"loss_type": ("dr_grpo", "luspo"), "importance_sampling_level": "sequence"},
            "luspo",
            CLIP,
            note="gspo's loss at every token, not divided by T",
        ),
        Rule({"loss_type": "luspo", "importance_sampling_level": "token"}, "ppo_clip", CLIP),
        Rule(
            {"loss_type": "cispo", "importance_sampling_level": "token"},
            "cispo@trl",
            {"eps_high": Their("epsilon_high")},
            note="epsilon_high is the bound of the weight itself: below 1 it scales every on-policy token",
        ),
        Rule({"loss_type": "sapo", "importance_sampling_level": "token"}, "sapo", SAPO),
        Rule({"loss_type": "vespo", "importance_sampling_level": "token"}, "vespo@trl", VESPO),
    ),
    aggregations=(
        Rule({"loss_type": ("grpo", "sapo")}, "sequence_mean"),
        Rule({"loss_type": ("dapo", "cispo", "vespo")}, "token_mean"),
        Rule({"loss_type": "bnpo"}, "token_mean", note="of every micro-batch by itself; here of the batch"),
        Rule({"loss_type": "dr_grpo"}, "constant", length=Their("max_completion_length", absent=0.0)),
        Rule({"loss_type": "luspo"}, "constant", length=1.0),
    ),
    advantages=(
        Rule({"scale_rewards": "group"}, "group_std", {"eps": 1e-4}),
        Rule({"scale_rewards": "none"}, "group_mean"),
    ),
    anchors=(Rule({}, "recompute"),),
    terms=(
        Rule({"beta": GIVEN, "use_bias_correction_kl": True}, "kl_penalty@trl", coefficient=Their("beta")),
        Rule({"beta": GIVEN, "use_bias_correction_kl": False}, "kl_penalty", coefficient=Their("beta")),
    ),
    refusals=(
        Refusal(
            {"scale_rewards": "batch"}, "no advantage here centers by group and divides by the batch's std."
        ),
        Refusal(
            {
                "loss_type": ("cispo", "sapo", "vespo", "luspo"),
                "use_vllm": True,
                "vllm_importance_sampling_correction": True,
            },
            "TRL multiplies this loss by the sampler's weights; set "
            "vllm_importance_sampling_correction=false, and take testbed's correction_weights of tis or mis "
            "beside it.",
        ),
        Refusal(
            {
                "importance_sampling_level": "sequence",
                "use_vllm": True,
                "vllm_importance_sampling_correction": True,
            },
            "no objective here has a sequence's ratio and the sampler's weights; set "
            "vllm_importance_sampling_correction=false.",
        ),
        Refusal(
            {"loss_type": ("cispo", "sapo", "vespo"), "importance_sampling_level": "sequence"},
            "these losses have no counterpart with a ratio per sequence.",
        ),
        Refusal(
            {"top_entropy_quantile": BELOW_ONE},
            "it reads entropies of all logits, which a batch does not hold.",
        ),
    ),
    traps=(
        "`loss_type` chooses two things, the surrogate and the denominator; grpo, dapo, bnpo and dr_grpo "
        "have the same surrogate. The default is dapo: a mean over all tokens, not GRPO's.",
        "`gspo` here is divided by T: with loss_type grpo its aggregation is `constant` with length 1. With "
        "dapo TRL averages the undivided sequence loss over tokens, which is `length_weighted` here.",
        "`importance_sampling_level=sequence` is the geometric mean; `sequence_mask` and `sequence_truncate` "
        "of the sampler's correction are the product over tokens.",
        "Neither of TRL's masks (sequence_mask, off_policy_mask_threshold) leaves the denominator.",
        "With `loss_type=cispo` and nothing else, the bound is epsilon's 0.2: every on-policy token has "
        "weight 0.2.",
        "`beta` is 0 by default: no KL. `use_bias_correction_kl` is on: the KL term is u k3, differentiated "
        "through both.",
    ),
    passes="num_iterations",
)
