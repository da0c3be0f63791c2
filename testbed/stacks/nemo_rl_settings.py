"""How NeMo-RL's settings under `loss_fn` and `grpo` translate into objectives and their parameters."""

import math

from testbed.stacks import ABSENT, GIVEN, NUMBER, Key, Refusal, Rule, Stack, Their

CLIP = {"eps_low": Their("ratio_clip_min"), "eps_high": Their("ratio_clip_max")}
DUAL = {**CLIP, "c": Their("ratio_clip_c", absent=math.inf)}
CORRECTS = "use_importance_sampling_correction"
CAP, FLOOR, TYPE = (f"truncated_importance_sampling_{name}" for name in ("ratio", "ratio_min", "type"))
PPO = {"disable_ppo_ratio": False, "use_cispo": False, "sequence_level_importance_ratios": False}
WINDOW = {"low": Their(FLOOR), "high": Their(CAP)}
KL = "reference_policy_kl_penalty"

STACK = Stack(
    name="nemo-rl",
    title="NeMo-RL",
    source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms/loss/loss_functions.py (ClippedPGLossFn), "
    "examples/configs/grpo_math_1B.yaml",
    keys=(
        Key("ratio_clip_min", 0.2, "loss_fn"),
        Key("ratio_clip_max", 0.2, "loss_fn"),
        Key("ratio_clip_c", None, "loss_fn"),
        Key("disable_ppo_ratio", False, "loss_fn"),
        Key("force_on_policy_ratio", False, "loss_fn"),
        Key("use_cispo", False, "loss_fn"),
        Key("sequence_level_importance_ratios", False, "loss_fn"),
        Key("token_level_loss", True, "loss_fn"),
        Key(CORRECTS, False, "loss_fn"),
        Key(CAP, None, "loss_fn"),
        Key(FLOOR, None, "loss_fn"),
        Key(TYPE, None, "loss_fn", note="tis where it is null and a ratio is set"),
        Key(KL, 0.01, "loss_fn"),
        Key("reference_policy_kl_type", "k3", "loss_fn"),
        Key("use_leave_one_out_baseline", True, "grpo"),
        Key("normalize_rewards", True, "grpo"),
    ),
    objectives=(
        Rule({**PPO, CORRECTS: False, "ratio_clip_c": ABSENT}, "ppo_clip", CLIP),
        Rule({**PPO, CORRECTS: False, "ratio_clip_c": NUMBER}, "dual_clip", DUAL),
        Rule({**PPO, CORRECTS: True, CAP: ABSENT}, "decoupled_ppo", DUAL),
        Rule(
            {
                **PPO,
                CORRECTS: True,
                CAP: NUMBER,
                TYPE: ("tis", ABSENT),
                FLOOR: ABSENT,
                "ratio_clip_c": ABSENT,
            },
            "tis",
            {"cap": Their(CAP), **CLIP},
        ),
        Rule(
            {
                **PPO,
                CORRECTS: True,
                CAP: NUMBER,
                TYPE: ("tis", ABSENT),
                FLOOR: ABSENT,
                "ratio_clip_c": NUMBER,
            },
            "tis@verl",
            {"cap": Their(CAP), **DUAL},
        ),
        Rule(
            {
                **PPO,
                CORRECTS: True,
                CAP: NUMBER,
                TYPE: ("tis", ABSENT),
                FLOOR: NUMBER,
                "ratio_clip_c": ABSENT,
            },
            "tis@openrlhf",
            {**WINDOW, **CLIP},
        ),
        Rule(
            {**PPO, CORRECTS: True, CAP: NUMBER, TYPE: "icepop", FLOOR: NUMBER}, "icepop", {**WINDOW, **DUAL}
        ),
        Rule(
            {**PPO, CORRECTS: True, CAP: NUMBER, TYPE: "seq-mask-tis", FLOOR: NUMBER, "ratio_clip_c": ABSENT},
            "sequence_mask_tis",
            {**WINDOW, **CLIP},
            note="the token weight is not truncated, whatever its name says",
        ),
        Rule(
            {
                "disable_ppo_ratio": False,
                "use_cispo": False,
                "sequence_level_importance_ratios": True,
                "token_level_loss": False,
                CORRECTS: False,
                "ratio_clip_c": ABSENT,
            },
            "gspo",
            CLIP,
            aggregation="constant",
            length=1.0,
        ),
        Rule({"disable_ppo_ratio": False, "use_cispo": True, CORRECTS: False}, "cispo@nemo-rl", CLIP),
        Rule({"disable_ppo_ratio": True, CORRECTS: False}, "reinforce"),
    ),
    aggregations=(
        Rule({"token_level_loss": True}, "token_mean"),
        Rule({"token_level_loss": False}, "sequence_mean"),
    ),
    advantages=(
        Rule({"normalize_rewards": True, "use_leave_one_out_baseline": True}, "group_std@nemo-rl"),
        Rule({"normalize_rewards": True, "use_leave_one_out_baseline": False}, "group_std"),
        Rule({"normalize_rewards": False, "use_leave_one_out_baseline": True}, "leave_one_out"),
        Rule({"normalize_rewards": False, "use_leave_one_out_baseline": False}, "group_mean"),
    ),
    anchors=(
        Rule({"force_on_policy_ratio": True}, "missing", note="the ratio is 1 at every pass: no clip binds"),
        Rule({}, "recompute"),
    ),
    terms=(
        Rule({KL: GIVEN, "reference_policy_kl_type": "k3"}, "kl_penalty@nemo-rl", coefficient=Their(KL)),
        *(
            Rule(
                {KL: GIVEN, "reference_policy_kl_type": kind},
                "kl_penalty",
                {"estimator": kind, "gradient": "both"},
                coefficient=Their(KL),
                note="without its clamps",
            )
            for kind in ("k1", "k2")
        ),
    ),
    refusals=(
        Refusal(
            {"sequence_level_importance_ratios": True, "token_level_loss": True},
            "NeMo-RL itself asserts a loss per sequence there; set token_level_loss=false.",
        ),
        Refusal(
            {"sequence_level_importance_ratios": True, "ratio_clip_c": GIVEN}, "gspo here has no dual clip."
        ),
        *(
            Refusal(
                {name: True, CORRECTS: True},
                "NeMo-RL multiplies this loss by the sampler's weights; here only the clipped loss has them "
                "inside. "
                f"Set {CORRECTS}=false, and take testbed's correction_weights of tis beside it.",
            )
            for name in ("sequence_level_importance_ratios", "use_cispo", "disable_ppo_ratio")
        ),
    ),
    traps=(
        "`use_leave_one_out_baseline` also leaves the response out of the std: not GRPO times G/(G-1), and "
        "the advantages of a group do not sum to zero.",
        "With `sequence_level_importance_ratios` the policy's ratio is the geometric mean, and the sampler's "
        "weight the full product over tokens.",
        "`gspo` here is divided by T, hence `constant` with length 1: NeMo-RL's GSPO is never "
        "length-weighted.",
        "None of its masks (icepop, seq-mask-tis) leaves the denominator.",
        "A KL of 0.01 is on by default, and has the score-function gradient added: its expectation is the "
        "gradient of KL(pi || ref), where TRL's older form and verl's have that of KL(ref || pi).",
        "There is no dual clip by default.",
    ),
)
